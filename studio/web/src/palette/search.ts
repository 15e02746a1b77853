// Which blocks a search finds: every word must occur in the name, the summary or the group; names that begin with it first.
import type { BlockDef } from "../model/blocks";

export interface Item {
  readonly key: string;
  readonly title: string;
  readonly summary: string;
  readonly group: string;
  readonly extension: boolean;
  /** A kind of input to be made by a dialog, instead of a block. */
  readonly input?: "npy" | "image" | "random";
}

export function itemsOf(
  blocks: readonly BlockDef[],
  inputs: readonly { kind: "npy" | "image" | "random"; title: string; summary: string }[],
): Item[] {
  const made = inputs.map(
    (i): Item => ({ key: `input ${i.kind}`, title: i.title, summary: i.summary, group: "inputs", extension: true, input: i.kind }),
  );
  return [
    ...blocks.map((b) => ({ key: b.name, title: b.name, summary: b.summary, group: b.group ?? "blocks", extension: b.extension })),
    ...made,
  ];
}

export function search(items: readonly Item[], text: string): Item[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const found = items.filter((item) => {
    const all = `${item.title} ${item.summary} ${item.group}`.toLowerCase();
    return words.every((word) => all.includes(word));
  });
  const first = words[0] ?? "";
  const rank = (item: Item): number => {
    const title = item.title.toLowerCase();
    return title === first ? 0 : title.startsWith(first) ? 1 : title.includes(first) ? 2 : 3;
  };
  return first ? found.map((item, k) => ({ item, k })).sort((a, b) => rank(a.item) - rank(b.item) || a.k - b.k).map((e) => e.item) : found;
}
