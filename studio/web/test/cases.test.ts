// The browser's quick checks say what the Python ones say, word for word, on every case of the shared file.
import { describe, expect, it } from "vitest";
import type { Library } from "../src/model/blocks";
import { checkProperty } from "../src/model/check";
import type { Page } from "../src/model/page";
import { refusal } from "../src/model/rules";
import shared from "./cases.json";

const library = shared.library as unknown as Library;
const page = { name: "rules", ...shared.page } as unknown as Page;

describe("the grammar of properties", () => {
  it.each(shared.properties.map((c) => [`${c.symbol}.${c.pin} = ${JSON.stringify(c.text)}`, c] as const))("%s", (_, c) => {
    const around = c as { type?: string; shape?: string; dtype?: string };
    expect(checkProperty(library, c.symbol, c.pin, c.text, around)).toEqual(c.said);
  });
});

describe("the connection rules", () => {
  const cases = shared.wires as [string, string, string, string, string | null][];
  it.each(cases)("%s.%s to %s.%s", (source, source_pin, target, target_pin, said) => {
    expect(refusal(library, page, { source, source_pin, target, target_pin })).toBe(said);
  });
  it("has cases of every kind", () => {
    const kinds = ["property", "scope", "only shows", "starts at", "ends at", "feed itself", "of type", "already", "loop", "no pin"];
    for (const kind of kinds) expect(cases.some((c) => c[4]?.includes(kind)), kind).toBe(true);
    expect(cases.filter((c) => c[4] === null).length).toBeGreaterThan(10);
  });
});
