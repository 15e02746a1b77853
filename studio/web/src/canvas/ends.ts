// A wire may be drawn from either end; this says which end is the source.
import type { Ends } from "../model/page";

export function endsOf(forwards: boolean, from: string, fromPin: string, to: string, toPin: string): Ends {
  return forwards
    ? { source: from, source_pin: fromPin, target: to, target_pin: toPin }
    : { source: to, source_pin: toPin, target: from, target_pin: fromPin };
}
