// The server's palettes as tables of pixels, so that a saved picture has the colours of the screen.

export type Lut = Uint32Array<ArrayBuffer>;

/** Pixels as a canvas keeps them (little-endian RGBA), from 256 colours of six hexadecimal digits. */
export function lutOf(palette: string): Lut {
  const lut = new Uint32Array(256);
  for (let k = 0; k < 256; k += 1) {
    const rgb = parseInt(palette.slice(6 * k, 6 * k + 6), 16) || 0;
    lut[k] = (0xff000000 | ((rgb & 0xff) << 16) | (rgb & 0xff00) | (rgb >> 16)) >>> 0;
  }
  return lut;
}

export const NOT_A_NUMBER = 0xffb400c8;

export interface Range {
  readonly low: number;
  readonly high: number;
  readonly palette: "sequential" | "diverging";
}

/** Values of both signs get the palette whose middle is zero. */
export function rangeOf(min: number | null, max: number | null): Range {
  const low = min ?? 0;
  const high = max ?? 0;
  if (low < 0 && high > 0) {
    const most = Math.max(-low, high);
    return { low: -most, high: most, palette: "diverging" };
  }
  return { low, high, palette: "sequential" };
}

export function shade(value: number, { low, high }: Range): number {
  const k = high > low ? ((value - low) / (high - low)) * 255 : 128;
  return k < 0 ? 0 : k > 255 ? 255 : Math.round(k);
}

export function paint(data: Float32Array, range: Range, lut: Lut): Uint32Array<ArrayBuffer> {
  const pixels = new Uint32Array(data.length);
  const { low, high } = range;
  const scale = high > low ? 255 / (high - low) : 0;
  const shift = high > low ? 0.5 - low * scale : 128;
  for (let k = 0; k < data.length; k += 1) {
    const value = data[k] as number;
    const at = value * scale + shift;
    pixels[k] = at >= 0 && at < 256 ? (lut[at | 0] as number) : value !== value ? NOT_A_NUMBER : (lut[at < 0 ? 0 : 255] as number);
  }
  return pixels;
}

/** Whether a pixel is so light that text on it must be dark. */
export function light(pixel: number): boolean {
  return 0.3 * (pixel & 255) + 0.59 * ((pixel >> 8) & 255) + 0.11 * ((pixel >> 16) & 255) > 140;
}
