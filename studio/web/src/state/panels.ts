// What floats over the page: watch windows and windows views.
import type { Dialog, Panel } from "./store";
import { get, set } from "./store";

const SIZES = { watch: { w: 460, h: 400 }, windows: { w: 720, h: 500 } };

function above(): number {
  return Math.max(0, ...get().panels.map((panel) => panel.z)) + 1;
}

type Place = Pick<Panel, "x" | "y" | "w" | "h">;

/** The corner of the page where a window of this size hides least of the blocks and of the other windows. */
function freePlace(size: { w: number; h: number }): Place {
  const room = document.querySelector(".middle")?.getBoundingClientRect();
  if (!room) return { x: 16, y: 16, ...size };
  const w = Math.min(size.w, room.width - 24);
  const h = Math.min(size.h, room.height - 24);
  const others = [...document.querySelectorAll(".block, .panel, .zoom, .example")].map((element) => element.getBoundingClientRect());
  const right = Math.max(8, room.width - w - 12);
  const below = Math.max(8, room.height - h - 12);
  const places = [[12, 12], [right, 12], [12, below], [right, below], [right / 2, 12], [right / 2, below]] as const;
  const hidden = ([x, y]: readonly [number, number]): number =>
    others.reduce((sum, r) => {
      const across = Math.min(room.left + x + w, r.right) - Math.max(room.left + x, r.left);
      const down = Math.min(room.top + y + h, r.bottom) - Math.max(room.top + y, r.top);
      return sum + Math.max(0, across) * Math.max(0, down);
    }, 0);
  const [x, y] = places.reduce((best, place) => (hidden(place) < hidden(best) ? place : best));
  return { x: Math.round(x), y: Math.round(y), w, h };
}

export function openPanel(kind: Panel["kind"], block: string, pin = ""): void {
  const { panels } = get();
  const key = `${kind}\n${block}\n${pin}`;
  if (panels.some((panel) => panel.key === key)) {
    raisePanel(key);
    return;
  }
  set({ panels: [...panels, { key, kind, block, pin, ...freePlace(SIZES[kind]), z: above() }] });
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

/** Dark, as enuSpace is, unless the user chose light. */
export function initialTheme(): "dark" | "light" {
  return localStorage.getItem("theme") === "light" ? "light" : "dark";
}
