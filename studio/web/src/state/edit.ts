// Every edit of the page: one step of undo, drawn at once, sent to the server, which answers what is wrong and stale now.
import type { Ends, Page, PinEdit } from "../model/page";
import * as pages from "../model/page";
import { redo as redone, record, undo as undone } from "../model/history";
import { blockDef } from "../model/blocks";
import { refusal } from "../model/rules";
import type { MadeInput } from "../net/types";
import { flowOf, placed, select, selectedIds } from "./flow";
import { get, set, toast } from "./store";
import { send } from "./sync";

/** Puts `page` in place of the page there was. Edits in a row of the same non-empty `kind` are undone together. */
function edit(page: Page, kind = ""): void {
  const state = get();
  if (page === state.page) return;
  set({ page, history: record(state.history, state.page, kind), ...flowOf(page, state.nodes, state.edges), dirty: true });
  send();
}

export function place(symbol: string, at?: { x: number; y: number }): string | null {
  const { library, page } = get();
  const definition = blockDef(library, symbol);
  if (!definition) return null;
  const { x, y } = at ?? freeSpot(page);
  const block = pages.newBlock(page, definition, Math.round(x), Math.round(y));
  edit(pages.addBlock(page, block));
  select(new Set([block.id]));
  set({ welcome: false });
  return block.id;
}

/** Where a block from the keyboard goes: right of what is selected, else in the first free place of a grid. */
function freeSpot(page: Page): { x: number; y: number } {
  const chosen = selectedIds();
  const start = page.blocks.find((block) => chosen.has(block.id));
  const taken = (x: number, y: number): boolean => page.blocks.some((b) => Math.abs(b.x - x) < 240 && Math.abs(b.y - y) < 220);
  if (start && !taken(start.x + 320, start.y)) return { x: start.x + 320, y: start.y };
  for (let k = 0; ; k += 1) {
    const spot = { x: 80 + 320 * Math.floor(k / 3), y: 80 + 260 * (k % 3) };
    if (!taken(spot.x, spot.y)) return spot;
  }
}

/** A block that holds an array from a file, an image or at random. */
export function placeInput(made: MadeInput): void {
  const id = place(made.symbol);
  if (id) edit(pages.setPins(get().page, id, made.pins));
  if (made.note) toast(made.note);
}

/** Draws a wire, or says why not; returns the reason. */
export function connect(ends: Ends): string | null {
  const { library, page } = get();
  const why = refusal(library, page, ends);
  if (why) {
    toast(`${ends.source}.${ends.source_pin} to ${ends.target}.${ends.target_pin}: ${why}`, "error");
    return why;
  }
  edit(pages.addWire(page, ends));
  return null;
}

export function setPin(block: string, pin: string, change: PinEdit): void {
  edit(pages.setPin(get().page, block, pin, change), `type ${block} ${pin} ${Object.keys(change).join()}`);
}

/** The next edit begins a new step of undo, even if it is of the same kind. */
export function endTyping(): void {
  set((state) => ({ history: { ...state.history, last: "" } }));
}

/** Lays the page out anew: for pages whose blocks lie over each other. */
export function arrange(): void {
  edit(pages.arrange(get().page));
}

export function dropDragged(): void {
  edit(placed());
}

export function removeWire(ends: Ends): void {
  edit(pages.remove(get().page, new Set(), new Set([pages.wireKey(ends)])));
}

export function removeSelected(): void {
  const { page, edges } = get();
  const ids = selectedIds();
  const keys = new Set(edges.filter((edge) => edge.selected).map((edge) => edge.id));
  if (ids.size + keys.size === 0) return;
  edit(pages.remove(page, ids, keys));
  set((state) => ({ panels: state.panels.filter((panel) => !ids.has(panel.block)) }));
}

export function renameBlock(from: string, to: string): string | null {
  const { page } = get();
  if (to === from) return null;
  if (to.trim() === "") return "a block needs a name";
  if (page.blocks.some((block) => block.id === to)) return `the name ${to} is taken`;
  edit(pages.rename(page, from, to));
  select(new Set([to]));
  set((state) => ({ panels: state.panels.filter((panel) => panel.block !== from) }));
  return null;
}

export function renamePage(name: string): void {
  if (name.trim() && name !== get().page.name) edit({ ...get().page, name });
}

export function copy(): void {
  const ids = selectedIds();
  if (ids.size === 0) return;
  set({ clip: pages.copyOf(get().page, ids), pasted: 0 });
  toast(ids.size === 1 ? "one block copied" : `${ids.size} blocks copied`);
}

export function cut(): void {
  copy();
  removeSelected();
}

export function paste(): void {
  const { clip, page, pasted } = get();
  if (!clip) return;
  const made = pages.paste(page, clip, 40 * (pasted + 1));
  edit(made.page);
  set({ pasted: pasted + 1 });
  select(made.ids);
}

export function duplicate(): void {
  copy();
  paste();
}

export function selectAll(): void {
  select(new Set(get().page.blocks.map((block) => block.id)));
}

function travel(step: typeof undone): void {
  const { history, page, nodes, edges } = get();
  const made = step(history, page);
  if (!made) return;
  set({ page: made.page, history: made.history, ...flowOf(made.page, nodes, edges), dirty: true });
  send();
}

export function undo(): void {
  travel(undone);
}

export function redo(): void {
  travel(redone);
}
