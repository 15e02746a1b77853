// Blocks on their way under the mouse. Until they are let go they are moved as the browser moves boxes: React and the store
// hear nothing of it, so a frame costs little however many blocks there are. A wire whose two ends move goes along as it is;
// only one with an end at rest is drawn anew.
import type { NodeChange, XYPosition } from "@xyflow/react";
import { useSyncExternalStore } from "react";
import { flushSync } from "react-dom";
import { onNodesChange } from "../state/flow";
import type { BlockNode } from "../state/store";
import { get } from "../state/store";

type Moved = Extract<NodeChange<BlockNode>, { type: "position" }>;

interface Carried {
  readonly ids: ReadonlySet<string>;
  /** What moves: the boxes of the blocks, and of the wires between them. */
  readonly boxes: readonly HTMLElement[];
  /** One of the blocks, and where it was: all move as far as it does. */
  readonly lead: string;
  readonly from: XYPosition;
}

let carried: Carried | null = null;
let changes: readonly Moved[] = [];
let offset: XYPosition = { x: 0, y: 0 };
let frame = 0;
const listeners = new Set<() => void>();

/** The blocks go where these changes say, once a frame, however often the mouse reports. */
export function carry(moved: readonly Moved[]): void {
  changes = moved;
  frame ||= requestAnimationFrame(draw);
}

/** The blocks stay where they are now; `then` sees them there. */
export function letGo(then: () => void): void {
  cancelAnimationFrame(frame);
  frame = 0;
  const last = changes;
  const boxes = carried?.boxes ?? [];
  changes = [];
  carried = null;
  offset = { x: 0, y: 0 };
  // Drawn before the boxes go back, so that no frame shows them at their old place.
  flushSync(() => {
    if (last.length > 0) onNodesChange([...last]);
    then();
    for (const tell of listeners) tell();
  });
  for (const box of boxes) box.style.translate = box.style.willChange = "";
}

function draw(): void {
  frame = 0;
  carried ??= pickUp(new Set(changes.map((change) => change.id)));
  const to = changes.find((change) => change.id === carried?.lead)?.position;
  if (!carried || !to) return;
  offset = { x: to.x - carried.from.x, y: to.y - carried.from.y };
  const text = `${offset.x}px ${offset.y}px`;
  for (const box of carried.boxes) box.style.translate = text;
  for (const tell of listeners) tell();
}

function pickUp(ids: ReadonlySet<string>): Carried | null {
  const { nodes, edges } = get();
  const lead = nodes.find((node) => ids.has(node.id));
  if (!lead) return null;
  const held = { from: lead.position, lead: lead.id, ids };
  const chosen = all(".react-flow__nodesselection-rect");
  if (ids.size === nodes.length) {
    // Everything moves: two sheets that are painted once and then only pushed about.
    const sheets = all(".react-flow__nodes, .react-flow__edges");
    for (const sheet of sheets) sheet.style.willChange = "transform";
    return { boxes: [...sheets, ...chosen], ...held };
  }
  const within = new Set(edges.filter((edge) => ids.has(edge.source) && ids.has(edge.target)).map((edge) => edge.id));
  const blocks = all(".react-flow__node").filter((box) => ids.has(box.dataset.id ?? ""));
  const wires = all(".react-flow__edge").filter((line) => within.has(line.dataset.id ?? ""));
  return { boxes: [...blocks, ...wires.flatMap((line) => line.closest<HTMLElement>("svg") ?? []), ...chosen], ...held };
}

function all(selector: string): HTMLElement[] {
  return [...document.querySelectorAll<HTMLElement>(selector)];
}

const REST = "0,0";

/** How far the one end of a wire that moves has moved; an end of a wire that goes along as it is stays where it was. */
export function useCarried(block: string, other: string): XYPosition {
  const text = useSyncExternalStore(subscribe, () =>
    carried?.ids.has(block) && !carried.ids.has(other) ? `${offset.x},${offset.y}` : REST,
  );
  const [x = 0, y = 0] = text.split(",").map(Number);
  return { x, y };
}

function subscribe(tell: () => void): () => void {
  listeners.add(tell);
  return () => listeners.delete(tell);
}
