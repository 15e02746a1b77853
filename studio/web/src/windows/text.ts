// What a window says in words.
import type { CellWindow, InputWindow, Span } from "../net/types";
import { short } from "../watch/index";

const NAMES: Record<number, string[]> = { 1: ["W"], 2: ["H", "W"], 3: ["D", "H", "W"] };

function place(at: readonly number[]): string {
  return `(${at.join(", ")})`;
}

export function spans(box: readonly Span[]): string {
  const names = NAMES[box.length] ?? [];
  return box
    .map(({ start, stop, step }, k) => {
      const last = start + Math.floor((stop - 1 - start) / step) * step;
      const through = last > start ? `${start}…${last}${step > 1 ? ` step ${step}` : ""}` : `${start}`;
      return `${names[k] ?? k} ${through}`;
    })
    .join(", ");
}

export function sayCell(window: CellWindow, gradient: boolean): string {
  if (window.inputs === 0) return `cell ${place(window.cell)} covers no input`;
  const where = `(${spans(window.box)})`;
  const at = place(window.cell);
  if (window.inputs === 1) {
    return gradient ? `dY${at} goes to one input ${where}, which gets ${window.weight} of it` : `Y${at} is ${window.weight}·X at ${where}`;
  }
  return gradient
    ? `dY${at} is shared among ${window.inputs} inputs ${where}: each of them gets ${window.weight}`
    : `Y${at} is a sum of ${window.inputs} inputs ${where}: each of them counts ${window.weight}`;
}

export function sayInput(window: InputWindow, gradient: boolean): string {
  const at = place(window.input);
  if (window.count === 0) return `no cell covers input ${at}: its gradient is 0`;
  const terms = window.cells.slice(0, 6).map((cell, k) => `${window.weights[k] ?? ""}·dY${place(cell)}`);
  const more = window.count > 6 ? ` + ${window.count - 6} more` : "";
  const sum = `dX${at} = ${terms.join(" + ")}${more}`;
  const feeds = window.count === 1 ? "one cell" : `${window.count} cells`;
  return `${sum}; ${gradient ? `${feeds} feed it` : `it counts in ${feeds}`}, ${short(window.total, 4)} in all`;
}
