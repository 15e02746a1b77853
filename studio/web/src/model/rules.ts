// Why two pins may not be connected: said while the wire is drawn, in the words of `poolgrad.enuspace.refusal`.
import type { Library } from "./blocks";
import { blockDef } from "./blocks";
import { quoted } from "./grammar";
import type { Block, Ends, Page, Pin } from "./page";
import { pinOf, sameEnds } from "./page";

export function refusal(library: Library, page: Page, ends: Ends): string | null {
  const source = page.blocks.find((block) => block.id === ends.source);
  const target = page.blocks.find((block) => block.id === ends.target);
  if (!source) return `there is no block ${quoted(ends.source)} on the page`;
  if (!target) return `there is no block ${quoted(ends.target)} on the page`;
  return pairRefusal(library, source, ends.source_pin, target, ends.target_pin) ?? placeRefusal(library, page, target, ends);
}

function pairRefusal(library: Library, source: Block, sourcePin: string, target: Block, targetPin: string): string | null {
  const start = pinOf(source, sourcePin);
  const end = pinOf(target, targetPin);
  for (const [block, name, pin] of [[source, sourcePin, start], [target, targetPin, end]] as const) {
    if (!pin && blockDef(library, block.symbol)) {
      return `${block.symbol} has no pin ${quoted(name)}; it has ${block.pins.map((p) => p.name).join(", ")}`;
    }
  }
  if (source.id === target.id) return "a block cannot feed itself";
  if (!start || !end) return null;
  return kinds(start, end) ?? interfaces(library, start, end);
}

/** Why no wire meets this pin at all. */
export function unwirable(pin: Pin): string | null {
  if (pin.name === "scope" && pin.interface === "Scope") return "the scope is made for each page and never wired";
  if (pin.kind === "const") return `${pin.name} is a property: type its value instead`;
  if (pin.kind === "result") return `${pin.name} only shows a value: wire ${pin.name.replace(/^result_/, "")} instead`;
  return null;
}

function kinds(start: Pin, end: Pin): string | null {
  const why = unwirable(start) ?? unwirable(end);
  if (why) return why;
  if (start.kind === "input") return `a wire starts at an output pin, and ${start.name} is an input`;
  if (end.kind === "output") return `a wire ends at an input pin, and ${end.name} is an output`;
  return null;
}

function interfaces(library: Library, start: Pin, end: Pin): string | null {
  const fits = library.allowed[start.interface] ?? [];
  if (!start.interface || !end.interface || fits.includes(end.interface)) return null;
  const said = fits.join(" or ") || "nothing";
  return `${start.name} is of type ${start.interface}, which fits ${said}, and ${end.name} is of type ${end.interface}`;
}

function placeRefusal(library: Library, page: Page, target: Block, ends: Ends): string | null {
  const end = pinOf(target, ends.target_pin);
  for (const wire of page.wires) {
    if (sameEnds(wire, ends)) return "this wire is there already";
    const meets = wire.target === ends.target && wire.target_pin === ends.target_pin;
    if (meets && end && !library.lists.includes(end.interface)) {
      return `${ends.target_pin} is wired to ${wire.source}.${wire.source_pin} already: remove that wire first`;
    }
  }
  return reaches(page, ends.target, ends.source) ? `${ends.target} feeds ${ends.source} already: this would close a loop` : null;
}

function reaches(page: Page, start: string, goal: string): boolean {
  const feeds = new Map<string, string[]>();
  for (const wire of page.wires) feeds.set(wire.source, [...(feeds.get(wire.source) ?? []), wire.target]);
  const seen = new Set([start]);
  const todo = [start];
  for (let id = todo.pop(); id !== undefined; id = todo.pop()) {
    for (const next of feeds.get(id) ?? []) {
      if (!seen.has(next)) {
        seen.add(next);
        todo.push(next);
      }
    }
  }
  return seen.has(goal);
}
