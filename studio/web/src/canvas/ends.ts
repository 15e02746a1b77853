// Where a wire in the hand begins and where it is held. A wire may be drawn from either end; and it may be held over a pin
// that takes none, which is no handle of React Flow but has a reason to give.
import type { Handle } from "@xyflow/react";
import { refusal } from "../model/rules";
import type { Ends } from "../model/page";
import { get } from "../state/store";

export type End = { readonly block: string; readonly pin: string };

/** The pin on the screen at this place. */
export function pinAt(x: number, y: number): End | null {
  const element = document.elementFromPoint(x, y)?.closest<HTMLElement>("[data-pin]");
  const block = element?.closest<HTMLElement>("[data-block]")?.dataset.block;
  return element?.dataset.pin && block ? { block, pin: element.dataset.pin } : null;
}

export function endsOf(from: Pick<Handle, "type" | "nodeId" | "id">, to: End): Ends {
  const held = { block: from.nodeId, pin: from.id ?? "" };
  const [source, target] = from.type === "source" ? [held, to] : [to, held];
  return { source: source.block, source_pin: source.pin, target: target.block, target_pin: target.pin };
}

/** Why a wire from this handle may not end there; null if it may, or if it is still at its own pin. */
export function whyNot(from: Pick<Handle, "type" | "nodeId" | "id">, to: End | null): string | null {
  if (!to || (to.block === from.nodeId && to.pin === from.id)) return null;
  return refusal(get().library, get().page, endsOf(from, to));
}
