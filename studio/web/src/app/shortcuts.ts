// Every key and what it does: the table that acts is the table that the help shows.
import type { ReactFlowInstance } from "@xyflow/react";
import * as edit from "../state/edit";
import { select, selectedIds } from "../state/flow";
import { closePanel, openDialog, openPanel } from "../state/panels";
import { run, running, step, stop } from "../state/run";
import { get } from "../state/store";
import { focusBlock, focusField, typing } from "./focus";

interface Shortcut {
  readonly keys: string;
  readonly group: "Page" | "Blocks" | "Run" | "Windows";
  readonly what: string;
  /** Does nothing and returns false where the key is not for it. */
  act?(flow: ReactFlowInstance): unknown;
  /** Also while text is typed. */
  readonly always?: boolean;
}

function one(): string | null {
  const ids = [...selectedIds()];
  return ids.length === 1 ? (ids[0] ?? null) : null;
}

function withOne(act: (id: string) => void): () => unknown {
  return () => {
    const id = one();
    if (!id) return false;
    act(id);
    return true;
  };
}

function wire(id: string): void {
  const block = get().page.blocks.find((b) => b.id === id);
  const wired = new Set(get().page.wires.filter((w) => w.target === id).map((w) => w.target_pin));
  const pins = block?.pins ?? [];
  const pin =
    pins.find((p) => p.kind === "input" && p.interface === "Input" && !wired.has(p.name)) ??
    pins.find((p) => p.kind === "output" && p.interface !== "Status") ??
    pins.find((p) => p.kind === "input" && p.interface !== "Scope");
  if (pin) openDialog({ kind: "wire", block: id, pin: pin.name });
}

/** The next block in reading order, for a keyboard that walks over the page. */
function walk(by: 1 | -1): () => unknown {
  return () => {
    const order = [...get().page.blocks].sort((a, b) => a.x - b.x || a.y - b.y).map((b) => b.id);
    if (order.length === 0) return false;
    const id = one();
    const at = id ? order.indexOf(id) : by > 0 ? -1 : 0;
    const next = order[(at + by + order.length) % order.length];
    if (!next) return false;
    select(new Set([next]));
    focusBlock(next);
    return true;
  };
}

export const SHORTCUTS: readonly Shortcut[] = [
  { group: "Page", keys: "/", what: "find a block in the palette; arrows choose, Enter places it", act: () => document.getElementById("palette-search")?.focus() },
  { group: "Page", keys: "Ctrl+Z", what: "undo", act: edit.undo },
  { group: "Page", keys: "Ctrl+Shift+Z", what: "redo", act: edit.redo },
  { group: "Page", keys: "Ctrl+Y", what: "redo", act: edit.redo },
  { group: "Page", keys: "Ctrl+O", what: "open a page", act: () => openDialog({ kind: "files", mode: "open" }), always: true },
  { group: "Page", keys: "Ctrl+S", what: "save the page", act: () => openDialog({ kind: "files", mode: "save" }), always: true },
  { group: "Page", keys: "F", what: "fit the page to the window", act: (flow) => flow.fitView({ padding: 0.15, duration: 150 }) },
  {
    group: "Page",
    keys: "L",
    what: "lay the blocks out in columns",
    act: (flow) => {
      edit.arrange();
      setTimeout(() => void flow.fitView({ padding: 0.15, maxZoom: 1, duration: 150 }), 30);
    },
  },
  { group: "Page", keys: "+", what: "zoom in", act: (flow) => flow.zoomIn({ duration: 100 }) },
  { group: "Page", keys: "-", what: "zoom out", act: (flow) => flow.zoomOut({ duration: 100 }) },
  { group: "Page", keys: "K", what: "show the page as code", act: () => openDialog({ kind: "code" }) },
  { group: "Page", keys: "?", what: "this help", act: () => openDialog({ kind: "help" }) },
  { group: "Blocks", keys: "N", what: "choose the next block", act: walk(1) },
  { group: "Blocks", keys: "Shift+N", what: "choose the block before", act: walk(-1) },
  { group: "Blocks", keys: "Arrows", what: "move the chosen blocks (Shift: farther)" },
  { group: "Blocks", keys: "E", what: "edit the properties of the chosen block", act: withOne((id) => focusField(id, "")) },
  { group: "Blocks", keys: "W", what: "wire the chosen block", act: withOne(wire) },
  { group: "Blocks", keys: "Ctrl+A", what: "choose every block", act: edit.selectAll },
  { group: "Blocks", keys: "Ctrl+C", what: "copy", act: edit.copy },
  { group: "Blocks", keys: "Ctrl+X", what: "cut", act: edit.cut },
  { group: "Blocks", keys: "Ctrl+V", what: "paste", act: edit.paste },
  { group: "Blocks", keys: "Ctrl+D", what: "copy and paste at once", act: edit.duplicate },
  { group: "Blocks", keys: "Delete", what: "delete blocks and wires", act: edit.removeSelected },
  { group: "Blocks", keys: "Backspace", what: "delete blocks and wires", act: edit.removeSelected },
  { group: "Run", keys: "Ctrl+Enter", what: "run", act: () => run(), always: true },
  { group: "Run", keys: "Ctrl+Shift+Enter", what: "step: one block", act: () => step(), always: true },
  { group: "Run", keys: "Ctrl+.", what: "stop", act: () => running() && stop(), always: true },
  { group: "Windows", keys: "V", what: "watch the values of the chosen block", act: withOne((id) => openPanel("watch", id)) },
  { group: "Windows", keys: "G", what: "see the windows of the chosen pooling", act: withOne((id) => openPanel("windows", id)) },
  { group: "Windows", keys: "Q", what: "close the window on top", act: () => closePanel() },
  { group: "Blocks", keys: "Escape", what: "leave a field; choose nothing", act: () => select(new Set()) },
];

export function keysOf(event: KeyboardEvent): string {
  const shifts = event.shiftKey && (event.key.length > 1 || /[a-z]/i.test(event.key));
  const name = event.key.length === 1 ? event.key.toUpperCase() : event.key;
  return `${event.ctrlKey || event.metaKey ? "Ctrl+" : ""}${shifts ? "Shift+" : ""}${name === "=" ? "+" : name}`;
}

/** Acts on keys for the whole window; dialogs and text fields keep theirs. */
export function listen(flow: ReactFlowInstance): () => void {
  const onKey = (event: KeyboardEvent): void => {
    if (event.key === "Escape" && typing(event.target)) {
      const id = one();
      (event.target as HTMLElement).blur();
      if (id) focusBlock(id);
      return;
    }
    if (get().dialog || event.defaultPrevented) return;
    const keys = keysOf(event);
    const found = SHORTCUTS.find((s) => s.keys === keys && s.act);
    if (!found || (typing(event.target) && !found.always)) return;
    if (getSelection()?.toString() && (keys === "Ctrl+C" || keys === "Ctrl+X")) return;
    event.preventDefault();
    found.act?.(flow);
  };
  addEventListener("keydown", onKey);
  return () => removeEventListener("keydown", onKey);
}
