// Judges one property as it is typed, as `poolgrad.enuspace.check_property` does.
import type { Library, PinDef } from "./blocks";
import { pinDef } from "./blocks";
import { PropertyError, checkValues, parseAttrs, parseBool, parseFloats, parseInts, parseShape, quoted } from "./grammar";

export interface Verdict {
  readonly ok: boolean;
  readonly message: string;
  readonly legal: string;
  readonly warnings: readonly string[];
}

/** What else decides about a tensor's text: its pin's type and shape, and for Const_ex the dtype property. */
export interface Around {
  readonly type?: string;
  readonly shape?: string;
  readonly dtype?: string;
}

export const PIN_DTYPES: Record<string, string> = { double: "float64", float: "float32", int: "int32", bool: "bool", string: "string" };
export const DATA_DTYPES: Record<string, string> = {
  DT_DOUBLE: "float64",
  DT_FLOAT: "float32",
  DT_INT32: "int32",
  DT_INT64: "int64",
  DT_BOOL: "bool",
  DT_STRING: "string",
  DT_HALF: "float16",
  DT_BFLOAT16: "bfloat16",
};

export function checkProperty(library: Library, symbol: string, pin: string, text: string, around: Around = {}): Verdict {
  const definition = pinDef(library, symbol, pin);
  if (definition?.kind !== "const") return { ok: true, message: "", legal: "", warnings: [] };
  try {
    return { ok: true, message: "", legal: "", warnings: read(library, symbol, definition, text, around) };
  } catch (error) {
    if (!(error instanceof PropertyError)) throw error;
    return { ok: false, message: error.message, legal: error.legal, warnings: [] };
  }
}

function read(library: Library, symbol: string, definition: PinDef, text: string, around: Around): string[] {
  switch (definition.form) {
    case "attrs":
      return attrs(definition, text);
    case "values":
      values(library, symbol, definition, text, around);
      return [];
    case "ints":
      ints(definition, text);
      return [];
    case "floats":
      ratios(definition, text);
      return [];
    case "bool":
      parseBool(text || "FALSE", definition.name);
      return [];
    case "padding":
      oneOf(definition.name, text, definition.choices);
      return [];
    case "dtype":
      oneOf(definition.name, text.trim(), Object.keys(DATA_DTYPES));
      return [];
    default:
      return [];
  }
}

function oneOf(name: string, text: string, choices: readonly string[]): string {
  if (!choices.includes(text)) {
    throw new PropertyError(text ? `${name} is ${quoted(text)}` : `${name} is empty`, choices.join(" or "));
  }
  return text;
}

function count(definition: PinDef, text: string, found: number, legal: string): void {
  if (found === definition.length) return;
  const said = text.trim() ? `of ${quoted(text)} has ${found} items` : "is empty";
  throw new PropertyError(`${definition.name} ${said}`, legal);
}

function ints(definition: PinDef, text: string): void {
  const [letters, example] = definition.length === 5 ? ["N,D,H,W,C", "1,2,2,2,1"] : ["N,H,W,C", "1,2,2,1"];
  const legal = `${definition.length} integers in the order of data_format_ (${letters} by default), such as ${example}`;
  const found = parseInts(text, legal);
  count(definition, text, found.length, legal);
  if (Math.min(...found) < 1 || found[0] !== 1) {
    throw new PropertyError(`${definition.name} ${quoted(text)} must be 1 for the batch and at least 1 elsewhere`, legal);
  }
}

function ratios(definition: PinDef, text: string): void {
  const legal = "4 numbers of at least 1 in the order N,H,W,C, the first and the last 1, such as 1.0,1.44,1.73,1.0";
  const found = parseFloats(text, legal);
  count(definition, text, found.length, legal);
  if (!found.every((value) => value >= 1 && value < Infinity) || found[0] !== 1 || found[3] !== 1) {
    throw new PropertyError(`${definition.name} ${quoted(text)} cannot be honoured`, legal);
  }
}

function attrs(definition: PinDef, text: string): string[] {
  const { values: given, warnings } = parseAttrs(text, definition.keys);
  for (const [key, value] of given) {
    if (definition.choices.length > 0) {
      if (definition.choices.includes(value)) continue;
      const why = value === "NHWC" ? "; enuSpace's own default, NHWC, is for images" : "";
      const legal = definition.choices.map((choice) => `${key} = ${choice};`).join(" or ");
      throw new PropertyError(`${key} is ${quoted(value)}${why}`, legal);
    } else if (key.startsWith("seed")) {
      checkValues(value, "int64", [1]);
    } else {
      parseBool(value, key);
    }
  }
  return warnings;
}

function values(library: Library, symbol: string, definition: PinDef, text: string, around: Around): void {
  const type = around.type || definition.type;
  if (!Object.keys(PIN_DTYPES).includes(type)) {
    throw new PropertyError(`the type of ${definition.name} is ${quoted(type)}`, Object.keys(PIN_DTYPES).join(" or "));
  }
  let dtype = PIN_DTYPES[type] ?? type;
  if (symbol === "Const_ex") {
    const named = around.dtype ?? pinDef(library, symbol, "dtype")?.default ?? "";
    dtype = DATA_DTYPES[oneOf("dtype", named.trim(), Object.keys(DATA_DTYPES))] ?? dtype;
  }
  checkValues(text, dtype, parseShape(around.shape ?? ""));
}
