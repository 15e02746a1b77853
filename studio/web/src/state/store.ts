// The one store: the document, what the server said about it, and what is open on the screen. Components read it by
// selectors; only the modules beside this one change it.
import type { Edge, Node } from "@xyflow/react";
import { create } from "zustand";
import type { Library } from "../model/blocks";
import type { History } from "../model/history";
import { NO_HISTORY } from "../model/history";
import type { Clip, Page, Wire } from "../model/page";
import type { Block } from "../model/page";
import { EMPTY } from "../model/page";
import type { BlockState, Explanation, Failure, Hello, LogEntry, Result, RunState } from "../net/types";

export type BlockNode = Node<{ block: Block }, "block">;
export type WireEdge = Edge<{ wire: Wire }, "wire">;

export interface Panel {
  readonly key: string;
  readonly kind: "watch" | "windows";
  readonly block: string;
  readonly pin: string;
  readonly x: number;
  readonly y: number;
  readonly w: number;
  readonly h: number;
  /** The greatest lies on top. */
  readonly z: number;
}

export type Dialog =
  | null
  | { kind: "help" }
  | { kind: "files"; mode: "open" | "save" }
  | { kind: "code" }
  | { kind: "wire"; block: string; pin: string }
  | { kind: "input"; source: "npy" | "image" | "random" };

export interface Toast {
  readonly key: number;
  readonly tone: "info" | "error";
  readonly text: string;
}

export interface State {
  link: "connecting" | "open" | "lost";
  hello: Hello | null;
  library: Library;
  doc: string | null;
  revision: number;
  file: string | null;
  /** Changed since it was last saved to its file. */
  dirty: boolean;
  /** The server has this page on disk; `sending` while an edit is under way. */
  kept: "kept" | "sending" | "waiting";
  page: Page;
  history: History;
  clip: Clip | null;
  pasted: number;
  nodes: BlockNode[];
  edges: WireEdge[];
  checks: LogEntry[];
  log: LogEntry[];
  run: RunState | null;
  states: ReadonlyMap<string, BlockState>;
  results: ReadonlyMap<string, Result>;
  stale: ReadonlySet<string>;
  explanation: Explanation | null;
  /** A pin that the log or a badge points at, for the inspector to show; `tick` makes the same pin count again. */
  focus: { block: string; pin: string; tick: number } | null;
  panels: Panel[];
  dialog: Dialog;
  toasts: Toast[];
  theme: "dark" | "light";
  welcome: boolean;
  failure: Failure | null;
}

const NO_LIBRARY: Library = { blocks: [], allowed: {}, lists: [] };

export const useStore = create<State>(() => ({
  link: "connecting",
  hello: null,
  library: NO_LIBRARY,
  doc: null,
  revision: 0,
  file: null,
  dirty: false,
  kept: "kept",
  page: EMPTY,
  history: NO_HISTORY,
  clip: null,
  pasted: 0,
  nodes: [],
  edges: [],
  checks: [],
  log: [],
  run: null,
  states: new Map(),
  results: new Map(),
  stale: new Set(),
  explanation: null,
  focus: null,
  panels: [],
  dialog: null,
  toasts: [],
  theme: "dark",
  welcome: false,
  failure: null,
}));

export const get = useStore.getState;
export const set = useStore.setState;

export function resultKey(block: string, pin: string): string {
  return `${block}\n${pin}`;
}

let toasts = 0;

export function toast(text: string, tone: Toast["tone"] = "info"): void {
  const key = ++toasts;
  set((state) => ({ toasts: [...state.toasts.slice(-3), { key, tone, text }] }));
  setTimeout(() => dismiss(key), tone === "error" ? 9000 : 4000);
}

export function dismiss(key: number): void {
  set((state) => ({ toasts: state.toasts.filter((t) => t.key !== key) }));
}
