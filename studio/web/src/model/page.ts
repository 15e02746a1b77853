// The page as the browser holds it, and every edit as a function from page to page. Nothing is changed in place: blocks and
// wires that an edit leaves alone stay the same objects, so undo keeps pages and the canvas redraws only what changed.
import type { BlockDef, PinKind } from "./blocks";

export interface DataRef {
  readonly ref: string;
  readonly bytes: number;
  readonly text: boolean;
}

export interface Pin {
  readonly name: string;
  readonly kind: PinKind | "";
  readonly interface: string;
  readonly type: string;
  readonly shape: string;
  readonly value: string;
  readonly data: DataRef | null;
}

export interface Block {
  readonly id: string;
  readonly symbol: string;
  readonly x: number;
  readonly y: number;
  readonly pins: readonly Pin[];
  readonly keep: string | null;
}

export interface Wire {
  readonly source: string;
  readonly source_pin: string;
  readonly target: string;
  readonly target_pin: string;
  readonly id: string;
  readonly keep: string | null;
}

export interface Page {
  readonly name: string;
  readonly blocks: readonly Block[];
  readonly wires: readonly Wire[];
}

export interface Ends {
  readonly source: string;
  readonly source_pin: string;
  readonly target: string;
  readonly target_pin: string;
}

export type PinEdit = Partial<Pick<Pin, "type" | "shape" | "value" | "data">>;

export const EMPTY: Page = { name: "page", blocks: [], wires: [] };

export function pinOf(block: Block | undefined, name: string): Pin | undefined {
  return block?.pins.find((pin) => pin.name === name);
}

/** A wire's name on the canvas; the file's own id may be empty or missing. */
export function wireKey(wire: Ends): string {
  return JSON.stringify([wire.source, wire.source_pin, wire.target, wire.target_pin]);
}

export function sameEnds(a: Ends, b: Ends): boolean {
  return a.source === b.source && a.source_pin === b.source_pin && a.target === b.target && a.target_pin === b.target_pin;
}

export function freeId(taken: ReadonlySet<string>): string {
  for (let k = 1; ; k += 1) if (!taken.has(`ID_${k}`)) return `ID_${k}`;
}

export function newBlock(page: Page, definition: BlockDef, x: number, y: number): Block {
  const pins = definition.pins.map(
    (pin): Pin => ({ name: pin.name, kind: pin.kind, interface: pin.interface, type: pin.type, shape: "", value: pin.default, data: null }),
  );
  return { id: freeId(new Set(page.blocks.map((b) => b.id))), symbol: definition.name, x, y, pins, keep: null };
}

export function addBlock(page: Page, block: Block): Page {
  return { ...page, blocks: [...page.blocks, block] };
}

export function addWire(page: Page, ends: Ends): Page {
  return { ...page, wires: [...page.wires, { ...ends, id: "", keep: null }] };
}

export function setPin(page: Page, id: string, name: string, edit: PinEdit): Page {
  return onBlock(page, id, (block) => ({
    ...block,
    pins: block.pins.map((pin) => (pin.name === name ? { ...pin, ...edit } : pin)),
  }));
}

export function setPins(page: Page, id: string, edits: Readonly<Record<string, PinEdit>>): Page {
  return Object.entries(edits).reduce((made, [name, edit]) => setPin(made, id, name, edit), page);
}

function onBlock(page: Page, id: string, change: (block: Block) => Block): Page {
  return { ...page, blocks: page.blocks.map((block) => (block.id === id ? change(block) : block)) };
}

export function moveBlocks(page: Page, places: ReadonlyMap<string, { x: number; y: number }>): Page {
  const blocks = page.blocks.map((block) => {
    const at = places.get(block.id);
    return at && (at.x !== block.x || at.y !== block.y) ? { ...block, x: at.x, y: at.y } : block;
  });
  return blocks.every((block, k) => block === page.blocks[k]) ? page : { ...page, blocks };
}

/** Takes blocks with their wires, and single wires, off the page. */
export function remove(page: Page, ids: ReadonlySet<string>, wires: ReadonlySet<string> = new Set()): Page {
  return {
    ...page,
    blocks: page.blocks.filter((block) => !ids.has(block.id)),
    wires: page.wires.filter((wire) => !ids.has(wire.source) && !ids.has(wire.target) && !wires.has(wireKey(wire))),
  };
}

/** A new name for a block; its wires follow. The caller has seen that the name is free. */
export function rename(page: Page, from: string, to: string): Page {
  const renamed = onBlock(page, from, (block) => ({ ...block, id: to }));
  const wires = page.wires.map((wire) =>
    wire.source === from || wire.target === from
      ? { ...wire, source: wire.source === from ? to : wire.source, target: wire.target === from ? to : wire.target }
      : wire,
  );
  return { ...renamed, wires };
}

/** Blocks in columns, each right of what feeds it; within a column in the order they had from top to bottom. */
export function arrange(page: Page): Page {
  const depth = new Map(page.blocks.map((block) => [block.id, 0]));
  for (let round = 0, moved = true; moved && round < page.blocks.length; round += 1) {
    moved = false;
    for (const { source, target } of page.wires) {
      const least = (depth.get(source) ?? -1) + 1;
      if (depth.has(source) && least > (depth.get(target) ?? Infinity)) {
        depth.set(target, least);
        moved = true;
      }
    }
  }
  const next = new Map<number, number>();
  const places = new Map<string, { x: number; y: number }>();
  for (const block of [...page.blocks].sort((a, b) => a.y - b.y || a.x - b.x)) {
    const column = depth.get(block.id) ?? 0;
    const y = next.get(column) ?? 60;
    places.set(block.id, { x: 60 + 330 * column, y });
    next.set(column, y + 90 + 21 * block.pins.length);
  }
  return moveBlocks(page, places);
}

export interface Clip {
  readonly blocks: readonly Block[];
  readonly wires: readonly Wire[];
}

/** Blocks and the wires between them, as they go to the clipboard. */
export function copyOf(page: Page, ids: ReadonlySet<string>): Clip {
  return {
    blocks: page.blocks.filter((block) => ids.has(block.id)),
    wires: page.wires.filter((wire) => ids.has(wire.source) && ids.has(wire.target)),
  };
}

/** The clip placed again beside where it was, under free names; returns the page and the new names. */
export function paste(page: Page, clip: Clip, offset: number): { page: Page; ids: Set<string> } {
  const taken = new Set(page.blocks.map((block) => block.id));
  const names = new Map<string, string>();
  for (const block of clip.blocks) {
    const id = freeId(taken);
    taken.add(id);
    names.set(block.id, id);
  }
  const named = (id: string): string => names.get(id) ?? id;
  const blocks = clip.blocks.map((b) => ({ ...b, id: named(b.id), x: b.x + offset, y: b.y + offset, keep: null }));
  const wires = clip.wires.map((w) => ({ ...w, source: named(w.source), target: named(w.target), id: "", keep: null }));
  const made = { ...page, blocks: [...page.blocks, ...blocks], wires: [...page.wires, ...wires] };
  return { page: made, ids: new Set(names.values()) };
}
