// Which cells of a grid are lit for the window that is shown, slice by slice.
import type { Span } from "../net/types";
import type { Light } from "./GridView";
import type { Shown } from "./useWindow";

export function within(box: readonly Span[], at: readonly number[]): boolean {
  return box.every(({ start, stop, step }, k) => {
    const i = at[k] ?? 0;
    return i >= start && i < stop && (i - start) % step === 0;
  });
}

/** A function that says how the cell at a full place (D, H, W) of one side is lit. */
export function lightsOf(shown: Shown, side: "cells" | "inputs"): (at: readonly number[]) => Light | null {
  if (!shown || shown.side === side) return () => null;
  if (shown.side === "cells") {
    const { box, weight, inputs } = shown.window;
    return (at) => (inputs > 0 && within(box, at) ? { text: weight, strength: 1 } : null);
  }
  const { box, cells, weights, shares } = shown.window;
  const most = Math.max(...shares, 1e-300);
  const listed = new Map(cells.map((cell, k) => [cell.join(), { text: weights[k] ?? "", strength: (shares[k] ?? 0) / most }]));
  return (at) => listed.get(at.join()) ?? (within(box, at) && cells.length < shown.window.count ? { text: "", strength: 0.3 } : null);
}

/** The part of a slice that is lit, and the slices (along D) it reaches through. */
export function litBox(shown: Shown, side: "cells" | "inputs"): readonly Span[] | null {
  if (!shown || shown.side === side) return null;
  const { box } = shown.window;
  return box.every(({ start, stop }) => stop > start) ? box : null;
}
