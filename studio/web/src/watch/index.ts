// Places in an array: texts, row-major numbers, and which two axes a picture shows.

/** The row-major number of `[1][2]`, `1,2` or `7`; null where there is no such element. */
export function parseIndex(text: string, shape: readonly number[]): number | null {
  const found = text.match(/\d+/g)?.map(Number) ?? [];
  if (found.length === 0 || /[^\d[\],;\s]/.test(text)) return null;
  const total = shape.reduce((product, n) => product * n, 1);
  if (found.length === 1 && shape.length !== 1) return (found[0] ?? 0) < total && !text.includes("[") ? (found[0] ?? null) : null;
  if (found.length !== shape.length) return null;
  let row = 0;
  for (const [k, n] of shape.entries()) {
    const at = found[k] ?? 0;
    if (at >= n) return null;
    row = row * n + at;
  }
  return row;
}

/** The two axes to draw first: the last two, or the two before a short last axis (channels). */
export function defaultAxes(shape: readonly number[]): [number, number] {
  const n = shape.length;
  if (n < 2) return [-1, 0];
  const last = shape[n - 1] ?? 1;
  return n >= 3 && last <= 4 && (shape[n - 2] ?? 1) > last ? [n - 3, n - 2] : [n - 2, n - 1];
}

/** A number as a label: short, and never more digits than float32 has. */
export function short(value: number | null | undefined, digits = 6): string {
  if (value === null || value === undefined) return "–";
  if (Number.isNaN(value)) return "nan";
  if (!Number.isFinite(value)) return value > 0 ? "inf" : "-inf";
  return String(Number(value.toPrecision(digits)));
}

/** Round numbers between two, about `count` of them. */
export function ticks(low: number, high: number, count: number): number[] {
  if (!(high > low)) return [low];
  const raw = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = ([1, 2, 5, 10].find((m) => m * power >= raw) ?? 10) * power;
  const made: number[] = [];
  for (let k = Math.ceil(low / step); k * step <= high + step * 1e-9; k += 1) made.push(k * step);
  return made;
}
