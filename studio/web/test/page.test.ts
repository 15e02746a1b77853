// Edits of a page: what they change, what they leave alone, and that undo brings back the very page there was.
import { describe, expect, it } from "vitest";
import type { BlockDef } from "../src/model/blocks";
import { NO_HISTORY, record, redo, undo } from "../src/model/history";
import * as pages from "../src/model/page";
import shared from "./cases.json";

const defs = shared.library.blocks as unknown as BlockDef[];
const def = (name: string): BlockDef => defs.find((d) => d.name === name) as BlockDef;

function sample(): pages.Page {
  let page: pages.Page = pages.EMPTY;
  for (const [k, name] of ["Const", "AvgPool", "AvgPool", "ClientSession"].entries()) {
    page = pages.addBlock(page, pages.newBlock(page, def(name), 10 * k, 20 * k));
  }
  page = pages.addWire(page, { source: "ID_1", source_pin: "output", target: "ID_2", target_pin: "value" });
  page = pages.addWire(page, { source: "ID_2", source_pin: "output", target: "ID_3", target_pin: "value" });
  return pages.addWire(page, { source: "ID_3", source_pin: "output", target: "ID_4", target_pin: "fetch_outputs" });
}

describe("a page", () => {
  it("gives new blocks the first free id, every pin and its default", () => {
    const page = pages.remove(sample(), new Set(["ID_2"]));
    const block = pages.newBlock(page, def("AvgPool3D"), 1, 2);
    expect(block.id).toBe("ID_2");
    expect(block.pins.map((p) => p.name)).toEqual(["scope", "input", "ksize", "strides", "padding", "attrs", "output", "result_output"]);
    expect(pages.pinOf(block, "attrs")?.value).toBe("data_format_ = NDHWC;");
  });

  it("keeps the objects that an edit leaves alone", () => {
    const page = sample();
    const made = pages.setPin(page, "ID_2", "ksize", { value: "1,2,2,1" });
    expect(made.blocks[0]).toBe(page.blocks[0]);
    expect(made.blocks[1]).not.toBe(page.blocks[1]);
    expect(made.wires).toBe(page.wires);
    expect(pages.pinOf(page.blocks[1], "ksize")?.value).toBe("1,1,1,1");
    expect(pages.moveBlocks(page, new Map([["ID_1", { x: 0, y: 0 }]]))).toBe(page);
  });

  it("takes the wires of a removed block with it, and single wires alone", () => {
    const page = sample();
    expect(pages.remove(page, new Set(["ID_3"])).wires.map((w) => w.target)).toEqual(["ID_2"]);
    const first = page.wires[0] as pages.Wire;
    expect(pages.remove(page, new Set(), new Set([pages.wireKey(first)])).wires).toHaveLength(2);
  });

  it("renames a block and both ends of its wires", () => {
    const page = pages.rename(sample(), "ID_3", "pool");
    expect(page.wires.map((w) => `${w.source}>${w.target}`)).toEqual(["ID_1>ID_2", "ID_2>pool", "pool>ID_4"]);
  });

  it("pastes copies under free names, wired among themselves, without what the file kept", () => {
    const page = { ...sample(), blocks: sample().blocks.map((b) => ({ ...b, keep: `k${b.id}` })) };
    const made = pages.paste(page, pages.copyOf(page, new Set(["ID_2", "ID_3"])), 40);
    expect([...made.ids]).toEqual(["ID_5", "ID_6"]);
    expect(made.page.wires.at(-1)).toMatchObject({ source: "ID_5", target: "ID_6", keep: null });
    expect(made.page.wires).toHaveLength(4);
    expect(made.page.blocks.at(-1)).toMatchObject({ keep: null, x: 60, y: 80 });
    expect(made.page.blocks[1]?.keep).toBe("kID_2");
  });

  it("is arranged in columns by what feeds what", () => {
    const xs = new Map(pages.arrange(sample()).blocks.map((b) => [b.id, b.x]));
    expect(xs.get("ID_1")).toBeLessThan(xs.get("ID_2") as number);
    expect(xs.get("ID_2")).toBeLessThan(xs.get("ID_3") as number);
    expect(xs.get("ID_3")).toBeLessThan(xs.get("ID_4") as number);
  });
});

describe("undo", () => {
  const [a, b, c] = ["a", "b", "c"].map((name) => ({ ...pages.EMPTY, name })) as [pages.Page, pages.Page, pages.Page];

  it("goes back and forth through the very pages there were", () => {
    const history = record(record(NO_HISTORY, a, ""), b, "");
    const back = undo(history, c);
    expect(back?.page).toBe(b);
    expect(redo((back as { history: typeof history }).history, b)?.page).toBe(c);
    expect(undo(NO_HISTORY, a)).toBeNull();
    expect(redo(history, c)).toBeNull();
  });

  it("takes typing in one field as one step, and forgets the future with a new edit", () => {
    const typed = record(record(NO_HISTORY, a, "type x"), b, "type x");
    expect(typed.past).toEqual([a]);
    expect(record(typed, c, "type y").past).toEqual([a, c]);
    const back = undo(typed, c) as { history: typeof typed };
    expect(record(back.history, a, "type x")).toMatchObject({ past: [a], future: [] });
  });
});
