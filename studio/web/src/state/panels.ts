// What floats over the page: watch windows and windows views.
import type { Dialog, Panel } from "./store";
import { get, set } from "./store";

const SIZES = { watch: { w: 400, h: 360 }, windows: { w: 720, h: 500 } };

function above(): number {
  return Math.max(0, ...get().panels.map((panel) => panel.z)) + 1;
}

export function openPanel(kind: Panel["kind"], block: string, pin = ""): void {
  const { panels } = get();
  const key = `${kind}\n${block}\n${pin}`;
  if (panels.some((panel) => panel.key === key)) {
    raisePanel(key);
    return;
  }
  const k = panels.length % 8;
  set({ panels: [...panels, { key, kind, block, pin, x: 24 + 36 * k, y: 24 + 30 * k, ...SIZES[kind], z: above() }] });
}

export function changePanel(key: string, change: Partial<Pick<Panel, "x" | "y" | "w" | "h" | "z">>): void {
  set((state) => ({ panels: state.panels.map((panel) => (panel.key === key ? { ...panel, ...change } : panel)) }));
}

export function raisePanel(key: string): void {
  const z = above();
  if (get().panels.find((panel) => panel.key === key)?.z !== z - 1) changePanel(key, { z });
}

/** Closes a window; without a key, the one on top. */
export function closePanel(key?: string): void {
  const { panels } = get();
  const top = key ?? [...panels].sort((a, b) => b.z - a.z)[0]?.key;
  set({ panels: panels.filter((panel) => panel.key !== top) });
}

export function openDialog(dialog: Dialog): void {
  set({ dialog });
}

let ticks = 0;

/** Leads the user to a block, and to the field of one of its properties. */
export function pointAt(block: string, pin = ""): void {
  set({ focus: { block, pin, tick: ++ticks } });
}

export function setTheme(theme: "dark" | "light"): void {
  document.documentElement.dataset.theme = theme;
  localStorage.setItem("theme", theme);
  set({ theme });
}

export function initialTheme(): "dark" | "light" {
  const kept = localStorage.getItem("theme");
  if (kept === "dark" || kept === "light") return kept;
  return matchMedia("(prefers-color-scheme: light)").matches ? "light" : "dark";
}
