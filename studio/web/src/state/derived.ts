// Tables made from the store's lists, once for each list: two hundred blocks look things up in them at every frame.
import type { Wire } from "../model/page";
import type { LogEntry } from "../net/types";
import { resultKey } from "./store";

function once<In extends object, Out>(make: (input: In) => Out): (input: In) => Out {
  let input: In | null = null;
  let output: Out;
  return (given) => {
    if (given !== input) {
      output = make(given);
      input = given;
    }
    return output;
  };
}

/** The first error of each block, under its id, and of each of its pins. */
export const problemsOf = once((checks: readonly LogEntry[]) => {
  const made = new Map<string, LogEntry>();
  for (const entry of checks) {
    if (entry.severity !== "error") continue;
    for (const key of [entry.block, resultKey(entry.block, entry.pin)]) if (!made.has(key)) made.set(key, entry);
  }
  return made;
});

/** The input pins of each block that have a wire, each followed by a line end. */
export const wiredPins = once((wires: readonly Wire[]) => {
  const made = new Map<string, string>();
  for (const wire of wires) made.set(wire.target, `${made.get(wire.target) ?? ""}${wire.target_pin}\n`);
  return made;
});
