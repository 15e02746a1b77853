// What the server says about blocks: the one table from which palette, pins, checks and connection rules are made.

export type PinKind = "input" | "const" | "output" | "result";

export interface PinDef {
  readonly name: string;
  readonly kind: PinKind;
  readonly interface: string;
  readonly type: string;
  readonly default: string;
  readonly form: string;
  readonly length: number;
  readonly keys: readonly string[];
  readonly choices: readonly string[];
  /** The legal form, for people. */
  readonly hint?: string;
}

export interface BlockDef {
  readonly name: string;
  readonly summary: string;
  readonly extension: boolean;
  readonly group?: string;
  readonly help?: string;
  readonly pins: readonly PinDef[];
}

export interface Library {
  readonly blocks: readonly BlockDef[];
  /** Which interfaces an interface may feed. */
  readonly allowed: Readonly<Record<string, readonly string[]>>;
  /** Interfaces that take any number of wires. */
  readonly lists: readonly string[];
}

export function blockDef(library: Library, symbol: string): BlockDef | undefined {
  return library.blocks.find((block) => block.name === symbol);
}

export function pinDef(library: Library, symbol: string, pin: string): PinDef | undefined {
  return blockDef(library, symbol)?.pins.find((p) => p.name === pin);
}
