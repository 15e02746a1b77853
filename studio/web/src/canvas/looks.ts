// What a block says about itself in a few characters.
import type { Pin } from "../model/page";
import type { BlockState, LogEntry, Result } from "../net/types";
import { short } from "../watch/index";

/** enuSpace shows the session's fetch pin under this name. */
export function label(pin: Pin): string {
  return pin.name === "fetch_outputs" ? "run (fetch_outputs)" : pin.name;
}

export function preview(pin: Pin): string {
  const tensor = pin.interface.includes("Initializer");
  const value = pin.data ? bytes(pin.data.bytes) : pin.value;
  return shorten(tensor ? `${pin.type}${pin.shape} ${value}` : value, 22);
}

/** The first values of a result, as many as fit on its pin; long numbers with four digits. */
export function firstValues({ type, head, size }: Result): string {
  if (size === 0) return "no elements";
  const texts = head.map((text) => (type === "string" || text.length < 8 || Number.isNaN(Number(text)) ? text : short(Number(text), 4)));
  for (let n = texts.length; n > 1; n -= 1) {
    const text = texts.slice(0, n).join(", ") + (n < size ? ", …" : "");
    if (text.length <= 26) return text;
  }
  return shorten(texts[0] ?? "", 22) + (size > 1 ? ", …" : "");
}

/** At most `most` characters: the beginning, and of a long name also its end, where names of a kind differ. */
export function shorten(text: string, most: number, tail = 0): string {
  return text.length <= most ? text : `${text.slice(0, most - 1 - tail)}…${tail ? text.slice(-tail) : ""}`;
}

export function duration(seconds: number): string {
  if (seconds < 1e-3) return `${Math.max(1, Math.round(seconds * 1e6))} µs`;
  if (seconds < 1) return `${(seconds * 1e3).toFixed(seconds < 0.01 ? 1 : 0)} ms`;
  return `${seconds.toFixed(seconds < 10 ? 2 : 1)} s`;
}

export function bytes(n: number): string {
  if (n < 1000) return `${n} B`;
  const units = ["kB", "MB", "GB"];
  let value = n / 1000;
  let k = 0;
  while (value >= 1000 && k < units.length - 1) {
    value /= 1000;
    k += 1;
  }
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} ${units[k] ?? ""}`;
}

export interface Badge {
  readonly tone: string;
  readonly text: string;
  readonly title: string;
}

/** The most urgent thing to know about a block: its error, that it is stale, or its state and time. */
export function badgeOf(state: BlockState | undefined, running: boolean, stale: boolean, problem: LogEntry | undefined): Badge | null {
  if (running) return { tone: "running", text: "running", title: "running" };
  if (state?.state === "failed" && !stale) return { tone: "failed", text: "! error", title: state.error };
  if (problem) return { tone: "failed", text: "! check", title: problem.message };
  if (stale) return { tone: "stale", text: "stale", title: "edited since the run: run again" };
  if (!state || state.state === "idle") return null;
  if (state.state === "blocked") return { tone: "blocked", text: "blocked", title: state.error };
  if (state.state === "cancelled") return { tone: "blocked", text: "stopped", title: "the run was stopped before this block" };
  return state.seconds > 0
    ? { tone: "done", text: `✓ ${duration(state.seconds)}`, title: `done in ${duration(state.seconds)}` }
    : { tone: "done", text: "✓", title: "done" };
}
