// Undo and redo: pages before and after. Edits of one kind in a row (typing in one field) are one step.
import type { Page } from "./page";

export interface History {
  readonly past: readonly Page[];
  readonly future: readonly Page[];
  /** What the last edit was, so that the next of the same kind joins it; "" joins nothing. */
  readonly last: string;
}

const MOST = 200;

export const NO_HISTORY: History = { past: [], future: [], last: "" };

export function record(history: History, before: Page, kind: string): History {
  if (kind !== "" && kind === history.last) return { ...history, future: [] };
  return { past: [...history.past, before].slice(-MOST), future: [], last: kind };
}

export function undo(history: History, now: Page): { history: History; page: Page } | null {
  const page = history.past.at(-1);
  if (!page) return null;
  return { page, history: { past: history.past.slice(0, -1), future: [now, ...history.future], last: "" } };
}

export function redo(history: History, now: Page): { history: History; page: Page } | null {
  const page = history.future[0];
  if (!page) return null;
  return { page, history: { past: [...history.past, now], future: history.future.slice(1), last: "" } };
}
