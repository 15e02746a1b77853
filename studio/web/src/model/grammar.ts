// The text of a property, judged while it is typed. The Python grammar is the law; this says the same at once, in the
// same words, and test/cases.test.ts holds both to one file of cases.

export class PropertyError extends Error {
  constructor(
    message: string,
    readonly legal: string,
  ) {
    super(message);
  }
}

const MOST_ELEMENTS = 2 ** 28;
const MOST_AXES = 32;
const TRUE = ["true", "TRUE", "True", "1"];
const FALSE = ["false", "FALSE", "False", "0"];

/** A text in quotes as Python shows it. */
export function quoted(text: string): string {
  const mark = text.includes("'") && !text.includes('"') ? '"' : "'";
  const body = text
    .replace(/\\/g, "\\\\")
    .replace(/\n/g, "\\n")
    .replace(/\r/g, "\\r")
    .replace(/\t/g, "\\t")
    .replace(mark === "'" ? /'/g : /(?!)/g, "\\'");
  return mark + body + mark;
}

export function shown(text: string): string {
  return quoted(text.length <= 40 ? text : `${text.slice(0, 37)}...`);
}

export function items(text: string): string[] {
  const parts = text.replace(/[{}]/g, "").split(/[,;]/);
  if (parts[parts.length - 1]?.trim() === "") parts.pop();
  return parts.map((part) => part.trim());
}

function filled(item: string, position: number, of: string, legal: string): string {
  if (item === "") throw new PropertyError(`item ${position} of ${shown(of)} is empty`, legal);
  return item;
}

function integer(item: string, position: number, of: string, legal: string, bits = 32): bigint {
  if (!/^[+-]?[0-9]{1,20}$/.test(item)) {
    throw new PropertyError(`item ${position} of ${shown(of)} is not an integer: ${shown(item)}`, legal);
  }
  const value = BigInt(item.replace(/^\+/, ""));
  const edge = 2n ** BigInt(bits - 1);
  if (value < -edge || value >= edge) {
    throw new PropertyError(`item ${position} of ${shown(of)} does not fit ${bits} bits: ${item}`, legal);
  }
  return value;
}

const FLOAT = /^[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,5})?|inf(?:inity)?|nan)$/i;

function float(item: string, position: number, of: string, legal: string): number {
  const bare = /[0-9.][fF]$/.test(item) ? item.slice(0, -1) : item;
  if (!FLOAT.test(bare)) {
    throw new PropertyError(`item ${position} of ${shown(of)} is not a number: ${shown(item)}`, legal);
  }
  if (/nan/i.test(bare)) return NaN;
  if (/inf/i.test(bare)) return bare.startsWith("-") ? -Infinity : Infinity;
  return Number(bare);
}

export function parseInts(text: string, legal: string): number[] {
  return items(text).map((item, k) => Number(integer(filled(item, k + 1, text, legal), k + 1, text, legal)));
}

export function parseFloats(text: string, legal: string): number[] {
  return items(text).map((item, k) => float(filled(item, k + 1, text, legal), k + 1, text, legal));
}

export function parseBool(text: string, name: string): boolean {
  if (TRUE.includes(text.trim())) return true;
  if (FALSE.includes(text.trim())) return false;
  throw new PropertyError(`${name} is neither true nor false: ${shown(text)}`, "true or false");
}

export function parseAttrs(text: string, known: readonly string[]): { values: Map<string, string>; warnings: string[] } {
  const legal = known.map((key) => `${key} = ...;`).join(" ") || "nothing: this block has no attributes";
  const values = new Map<string, string>();
  const warnings: string[] = [];
  for (const part of text.replace(/[ \t\r\n]/g, "").split(";")) {
    if (part === "") continue;
    const equals = part.indexOf("=");
    if (equals < 0) throw new PropertyError(`${shown(part)} in ${shown(text)} has no '='`, legal);
    const key = part.slice(0, equals);
    if (!known.includes(key)) {
      const near = known.includes(`${key}_`) ? `did you mean ${key}_?` : `known here: ${known.join(", ") || "none"}`;
      warnings.push(`the unknown key ${shown(key)} is ignored; ${near}`);
    } else if (values.has(key)) {
      warnings.push(`${key} is given again: the first value, ${quoted(values.get(key) ?? "")}, holds`);
    } else {
      values.set(key, part.slice(equals + 1));
    }
  }
  return { values: new Map([...values].filter(([, value]) => value !== "")), warnings };
}

export function parseShape(text: string): number[] {
  const bare = text.trim();
  let sizes: number[];
  if (/^(?:\[\s*[0-9]{1,10}\s*\])*$/.test(bare)) {
    sizes = (bare.match(/[0-9]+/g) ?? []).map(Number);
  } else if (/^\{\s*[0-9]{1,10}(?:\s*,\s*[0-9]{1,10})*\s*\}$/.test(bare)) {
    sizes = bare.slice(1, -1).split(",").map(Number);
  } else {
    throw new PropertyError(`shape ${shown(text)} is not a list of sizes`, "sizes in brackets, such as [2][3]");
  }
  if (sizes.length > MOST_AXES || sizeOf(sizes) > MOST_ELEMENTS) {
    const most = `${MOST_AXES} axes or ${MOST_ELEMENTS} elements`;
    throw new PropertyError(`shape ${shown(text)} has more than ${most}`, "a smaller shape");
  }
  return sizes;
}

export function sizeOf(shape: readonly number[]): number {
  return shape.reduce((product, n) => product * n, 1);
}

export function formatShape(shape: readonly number[]): string {
  return shape.map((n) => `[${n}]`).join("");
}

/** The largest finite value of each floating type; half a step above it rounds to infinity. */
const LARGEST: Record<string, number> = {
  float64: Number.MAX_VALUE,
  float32: (2 - 2 ** -24) * 2 ** 127,
  float16: 65520,
  bfloat16: (2 - 2 ** -8) * 2 ** 127,
};

export function checkValues(text: string, dtype: string, shape: readonly number[]): void {
  const size = sizeOf(shape);
  const strings = dtype === "string";
  let parts = strings ? text.replace(/;$/, "").split(";") : items(text);
  if (strings && text === "") parts = size === 1 ? [""] : [];
  if (parts.length !== size) {
    const plural = (n: number): string => (n === 1 ? "" : "s");
    throw new PropertyError(
      `${parts.length} value${plural(parts.length)} for the shape ${formatShape(shape) || "scalar"}`,
      `exactly ${size} value${plural(size)}, or a shape that holds ${parts.length}, such as [${parts.length}]`,
    );
  }
  if (!strings) checkTyped(parts, text, dtype);
}

function checkTyped(parts: readonly string[], text: string, dtype: string): void {
  const legal = `${parts.length} values of type ${dtype}`;
  if (dtype === "bool") {
    parts.forEach((part, k) => parseBool(part, `item ${k + 1} of ${shown(text)}`));
    return;
  }
  if (dtype.startsWith("int")) {
    const bits = Number(dtype.slice(3));
    parts.forEach((part, k) => integer(filled(part, k + 1, text, legal), k + 1, text, legal, bits));
    return;
  }
  const values = parts.map((part, k) => float(filled(part, k + 1, text, legal), k + 1, text, legal));
  const edge = LARGEST[dtype] ?? Number.MAX_VALUE;
  const over = values.findIndex((value, k) => {
    const beyond = dtype === "float64" ? Math.abs(value) > edge : Math.abs(value) >= edge;
    return beyond && !/inf/i.test(parts[k] ?? "");
  });
  if (over >= 0) {
    throw new PropertyError(`item ${over + 1} of ${shown(text)} does not fit ${dtype}: ${shown(parts[over] ?? "")}`, legal);
  }
}
