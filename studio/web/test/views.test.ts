// What the views make of numbers: which rows show, which colours, which axes, which words.
import { describe, expect, it } from "vitest";
import { badgeOf, bytes, duration, firstValues, label, preview, shorten } from "../src/canvas/looks";
import type { Pin } from "../src/model/page";
import { itemsOf, search } from "../src/palette/search";
import { lutOf, NOT_A_NUMBER, paint, rangeOf, shade } from "../src/watch/colours";
import { defaultAxes, parseIndex, short, ticks } from "../src/watch/index";
import { chunksOf, ROW_HEIGHT, scrollTo, tableHeight, visible } from "../src/watch/rows";
import { lightsOf, litBox } from "../src/windows/lights";
import { sayCell, sayInput, spans } from "../src/windows/text";
import shared from "./cases.json";

describe("what fits on a block", () => {
  const of = (head: string[], size: number, type = "float") => firstValues({ block: "", pin: "", dtype: "", shape: [], bytes: 0, type, head, size });

  it("shows the first values of a result", () => {
    expect(of(["1", "3", "5", "7"], 4)).toBe("1, 3, 5, 7");
    expect(of(["1", "3", "5", "7"], 5)).toBe("1, 3, 5, 7, …");
    expect(of(["-0.40856681", "nan", "inf", "0.25"], 9)).toBe("-0.4086, nan, inf, 0.25, …");
    expect(of(["2.5"], 1)).toBe("2.5");
    expect(of([], 0)).toBe("no elements");
    expect(of(["12345678", "a text that is longer than a block"], 2, "string")).toBe("12345678, …");
  });

  it("never widens it", () => {
    const pin = { kind: "const", interface: "Initializer", type: "float", shape: "[1][1000][1000][1]", value: "", data: { ref: "", bytes: 4e6, text: false } };
    expect(preview(pin as Pin).length).toBeLessThanOrEqual(22);
    expect(of(["-1.2345678e-38", "-1.2345678e-38", "-1.2345678e-38"], 9).length).toBeLessThanOrEqual(26);
    expect(shorten("abcdefgh", 6, 2)).toBe("abc…gh");
    expect(shorten("abcdef", 6, 2)).toBe("abcdef");
  });
});

describe("a long table", () => {
  it.each([10, 1000, 681_818, 1_000_000, 268_435_456])("shows its first and its last row: %i rows", (total) => {
    const view = 300;
    expect(visible(total, 0, view).first).toBe(0);
    expect(visible(total, tableHeight(total) - view, view).last).toBe(total);
    expect(tableHeight(total)).toBeLessThanOrEqual(15_000_000);
  });

  it.each([500, 1_000_000, 50_000_000])("finds any row again: %i rows", (total) => {
    for (const row of [0, 17, Math.floor(total / 3), total - 40]) {
      const { first, last } = visible(total, scrollTo(total, row, 300), 300);
      expect(Math.abs(first - row)).toBeLessThanOrEqual(1);
      expect(last).toBeGreaterThan(row);
    }
  });

  it("asks for the chunks in sight alone", () => {
    expect(chunksOf({ first: 95, last: 112 })).toEqual([0, 1]);
    expect(chunksOf({ first: 300, last: 310 })).toEqual([3]);
    expect(visible(1e5, 22 * 100, 10 * ROW_HEIGHT)).toEqual({ first: 100, last: 111 });
  });
});

describe("places", () => {
  it.each([
    ["[1][2]", [3, 4], 6],
    ["1,2", [3, 4], 6],
    ["7", [3, 4], 7],
    ["[7]", [3, 4], null],
    ["[3][0]", [3, 4], null],
    ["12", [3, 4], null],
    ["[2]", [5], 2],
    ["x", [5], null],
    ["", [5], null],
    ["[0][1][2][0]", [2, 3, 4, 1], 6],
  ] as const)("%s in %j is %j", (text, shape, row) => {
    expect(parseIndex(text, shape)).toBe(row);
  });

  it.each([
    [[7], [-1, 0]],
    [[3, 4], [0, 1]],
    [[2, 5, 6, 3], [1, 2]],
    [[2, 5, 6, 30], [2, 3]],
    [[2, 4, 5, 6, 1], [2, 3]],
  ] as const)("%j shows the axes %j", (shape, axes) => {
    expect(defaultAxes(shape)).toEqual(axes);
  });

  it("writes numbers short", () => {
    expect([0.1 + 0.2, 1 / 3, 1e20, NaN, -Infinity, null].map((v) => short(v))).toEqual(["0.3", "0.333333", "100000000000000000000", "nan", "-inf", "–"]);
    expect(ticks(0, 10, 5)).toEqual([0, 2, 4, 6, 8, 10]);
    expect(ticks(3, 3, 5)).toEqual([3]);
  });
});

describe("colours", () => {
  const palette = Array.from({ length: 256 }, (_, k) => k.toString(16).padStart(2, "0") + "0000").join("");
  const lut = lutOf(palette);

  it("run from the least to the greatest, and stop there", () => {
    const range = rangeOf(0, 10);
    expect(range.palette).toBe("sequential");
    const red = Array.from(paint(new Float32Array([0, 5, 10, -3, 30]), range, lut), (p) => p & 255);
    expect([red[0], red[2], red[3], red[4]]).toEqual([0, 255, 0, 255]);
    expect(Math.abs((red[1] ?? 0) - 128)).toBeLessThanOrEqual(1);
    expect(shade(5, range)).toBe(128);
  });

  it("have zero in the middle where both signs occur, and a colour of its own for what is no number", () => {
    expect(rangeOf(-1, 4)).toEqual({ low: -4, high: 4, palette: "diverging" });
    expect(paint(new Float32Array([NaN]), rangeOf(-1, 4), lut)[0]).toBe(NOT_A_NUMBER);
    expect(rangeOf(null, null)).toEqual({ low: 0, high: 0, palette: "sequential" });
  });
});

describe("the palette of blocks", () => {
  const items = itemsOf(shared.library.blocks as never, [{ kind: "npy", title: "Array file", summary: "from a .npy file" }]);

  it("finds by every word, names that begin with the first one first", () => {
    expect(search(items, "avgpool3d").map((i) => i.title)).toEqual(["AvgPool3D", "AvgPool3DGrad"]);
    expect(search(items, "gradient volumes")).toEqual([]);
    expect(search(items, "npy")[0]?.input).toBe("npy");
    expect(search(items, "").length).toBe(items.length);
    expect(search(items, "grad")[0]?.title).toContain("Grad");
  });
});

describe("windows", () => {
  const box = [
    { start: 0, stop: 2, step: 1 },
    { start: 2, stop: 5, step: 2 },
  ];
  const cell = { cell: [0, 1], box, inputs: 4, divisor: 4, weight: "1/4", share: 0.25 };
  const input = { input: [1, 2], box, cells: [[0, 2], [0, 4]], weights: ["1/4", "1/6"], shares: [0.25, 1 / 6], count: 2, total: 5 / 12 };

  it("light the inputs of a cell, holes of a dilated window left dark", () => {
    const light = lightsOf({ side: "cells", window: cell }, "inputs");
    expect(light([1, 4])?.text).toBe("1/4");
    expect(light([1, 3])).toBeNull();
    expect(light([2, 2])).toBeNull();
    expect(lightsOf({ side: "cells", window: cell }, "cells")([0, 2])).toBeNull();
  });

  it("light every cell that feeds an input, stronger where its share is greater", () => {
    const light = lightsOf({ side: "inputs", window: input }, "cells");
    expect(light([0, 2])).toEqual({ text: "1/4", strength: 1 });
    expect(light([0, 4])?.strength).toBeCloseTo(2 / 3);
    expect(light([1, 2])).toBeNull();
    expect(litBox({ side: "inputs", window: input }, "cells")).toBe(box);
  });

  it("are said in words", () => {
    expect(spans(box)).toBe("H 0…1, W 2…4 step 2");
    expect(sayCell(cell, true)).toBe("dY(0, 1) is shared among 4 inputs (H 0…1, W 2…4 step 2): each of them gets 1/4");
    expect(sayCell({ ...cell, inputs: 0 }, true)).toBe("cell (0, 1) covers no input");
    expect(sayInput(input, true)).toBe("dX(1, 2) = 1/4·dY(0, 2) + 1/6·dY(0, 4); 2 cells feed it, 0.4167 in all");
    expect(sayInput({ ...input, count: 0, cells: [] }, true)).toBe("no cell covers input (1, 2): its gradient is 0");
  });
});

describe("a block's badge", () => {
  const done = { block: "a", state: "done", seconds: 0.0021, error: "", cycle: 1 } as const;
  const bad = { severity: "error", block: "a", message: "ksize is empty", pin: "ksize" } as const;

  it("says the most urgent thing", () => {
    expect(badgeOf(done, false, false, undefined)?.text).toBe("✓ 2.1 ms");
    expect(badgeOf(done, false, true, undefined)?.tone).toBe("stale");
    expect(badgeOf(done, false, true, bad)?.title).toBe("ksize is empty");
    expect(badgeOf(done, true, true, bad)?.tone).toBe("running");
    expect(badgeOf({ ...done, state: "failed", error: "no" }, false, false, undefined)?.title).toBe("no");
    expect(badgeOf(undefined, false, false, undefined)).toBeNull();
  });

  it("writes times, sizes and names", () => {
    expect([4e-6, 0.0123, 2.345, 61].map(duration)).toEqual(["4 µs", "12 ms", "2.35 s", "61.0 s"]);
    expect([12, 4_000_000, 2.5e9].map(bytes)).toEqual(["12 B", "4.0 MB", "2.5 GB"]);
    expect(label({ name: "fetch_outputs" } as Pin)).toBe("run (fetch_outputs)");
  });
});
