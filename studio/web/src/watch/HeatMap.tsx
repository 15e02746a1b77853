// Two axes of an array as a picture, a slider for each of the others. The arrow keys move over the cells.
import { useEffect, useMemo, useRef, useState } from "react";
import type { Binary, SliceHead } from "../net/types";
import { useStore } from "../state/store";
import { AxisChoice, Sliders } from "./Axes";
import type { Lut, Range } from "./colours";
import { light, lutOf, paint, rangeOf, shade } from "./colours";
import { defaultAxes, short } from "./index";
import { useAnswer } from "./useAnswer";
import { useSize } from "./useSize";

interface Props {
  readonly target: { readonly doc: string | null; readonly block: string; readonly pin: string };
  readonly shape: readonly number[];
  readonly version: string;
  readonly onView: (query: string) => void;
}

export function HeatMap({ target, shape, version, onView }: Props): React.JSX.Element {
  const [axes, setAxes] = useState(() => defaultAxes(shape));
  const [index, setIndex] = useState<number[]>(() => shape.map(() => 0));
  const points = useStore((s) => s.hello?.limits.points ?? 1024);
  const [row, column] = axes;
  const height = Math.min(points, row < 0 ? 1 : (shape[row] ?? 1));
  const width = Math.min(points, shape[column] ?? 1);
  const { value: slice, why } = useAnswer<Binary<SliceHead>>("slice", { ...target, axes, index, height, width }, version);
  const palette = rangeOf(slice?.head.min ?? null, slice?.head.max ?? null).palette;
  const query = `axes=${axes.join()}&index=${index.join()}&palette=${palette}`;
  useEffect(() => onView(query), [query, onView]);

  function choose(which: 0 | 1, axis: number): void {
    const other = axes[1 - which] ?? 0;
    const next: [number, number] = which === 0 ? [axis, other === axis ? row : column] : [other === axis ? column : row, axis];
    setAxes(next);
  }

  return (
    <div className="heat">
      <div className="controls">
        {shape.length > 1 && (
          <>
            <AxisChoice name="down" shape={shape} value={row} onChange={(axis) => choose(0, axis)} />
            <AxisChoice name="across" shape={shape} value={column} onChange={(axis) => choose(1, axis)} />
          </>
        )}
        <Sliders shape={shape} skip={axes} index={index} onChange={setIndex} />
      </div>
      {why && <p className="error">{why}</p>}
      {slice && <Picture slice={slice} axes={axes} index={index} />}
    </div>
  );
}

function Picture({ slice, axes, index }: { slice: Binary<SliceHead>; axes: [number, number]; index: readonly number[] }): React.JSX.Element {
  const { head, data } = slice;
  const [rows, columns] = head.shape;
  const palettes = useStore((s) => s.hello?.palettes);
  const range = useMemo(() => rangeOf(head.min, head.max), [head]);
  const lut = useMemo(() => lutOf(palettes?.[range.palette] ?? ""), [palettes, range]);
  const canvas = useRef<HTMLCanvasElement>(null);
  const [box, size] = useSize<HTMLDivElement>();
  const [at, setAt] = useState<[number, number] | null>(null);
  const cell = Math.min(64, size.width / columns, size.height / rows);

  useEffect(() => {
    const context = canvas.current?.getContext("2d");
    if (!context || rows * columns === 0) return;
    context.putImageData(new ImageData(new Uint8ClampedArray(paint(data, range, lut).buffer), columns, rows), 0, 0);
    performance.mark("heat map drawn");
  }, [data, range, lut, rows, columns]);

  function onKeyDown(event: React.KeyboardEvent): void {
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    const [r, c] = at ?? [0, -1];
    setAt([clamp(r + (step[0] ?? 0), rows), clamp(c + (step[1] ?? 0), columns)]);
  }

  function onMove(event: React.PointerEvent): void {
    const edge = event.currentTarget.getBoundingClientRect();
    setAt([clamp(Math.floor((event.clientY - edge.top) / cell), rows), clamp(Math.floor((event.clientX - edge.left) / cell), columns)]);
  }

  return (
    <>
      <div className="picture" ref={box}>
        <div className="picture-frame" style={{ width: cell * columns, height: cell * rows }} onPointerMove={onMove} onPointerLeave={() => setAt(null)}>
          <canvas
            ref={canvas}
            width={columns}
            height={rows}
            tabIndex={0}
            role="img"
            aria-label={`heat map of ${rows} by ${columns} cells, from ${short(head.min)} to ${short(head.max)}`}
            onKeyDown={onKeyDown}
          />
          {cell >= 36 && rows * columns <= 400 && <Numbers data={data} rows={rows} columns={columns} range={range} lut={lut} />}
          {at && <div className="cursor" style={{ left: at[1] * cell, top: at[0] * cell, width: cell, height: cell }} />}
        </div>
      </div>
      <div className="scale">
        <span>{short(range.low, 4)}</span>
        <Legend lut={lut} />
        <span>{short(range.high, 4)}</span>
        <output aria-live="polite">{at ? readout(slice, axes, index, at) : head.step[0] * head.step[1] > 1 ? "each cell is a mean" : ""}</output>
      </div>
    </>
  );
}

function clamp(k: number, n: number): number {
  return Math.max(0, Math.min(n - 1, k));
}

function readout(slice: Binary<SliceHead>, axes: [number, number], index: readonly number[], [r, c]: [number, number]): string {
  const { step, shape } = slice.head;
  const value = slice.data[r * shape[1] + c];
  const place = index.map((k, axis) => (axis === axes[0] ? r * step[0] : axis === axes[1] ? c * step[1] : k));
  const many = step[0] * step[1] > 1 ? "mean near " : "";
  return `${many}${place.map((k) => `[${k}]`).join("")} = ${short(value)}`;
}

interface NumbersProps {
  readonly data: Float32Array;
  readonly rows: number;
  readonly columns: number;
  readonly range: Range;
  readonly lut: Lut;
}

/** The values in the cells, where there is room; dark on light and light on dark. */
function Numbers({ data, rows, columns, range, lut }: NumbersProps): React.JSX.Element {
  return (
    <div className="numbers" style={{ gridTemplateColumns: `repeat(${columns}, 1fr)`, gridTemplateRows: `repeat(${rows}, 1fr)` }} aria-hidden="true">
      {Array.from(data, (value, k) => (
        <span key={k} className={light(lut[shade(value, range)] ?? 0) ? "on-light" : ""}>
          {short(value, 3)}
        </span>
      ))}
    </div>
  );
}

function Legend({ lut }: { lut: Lut }): React.JSX.Element {
  const stops = [0, 51, 102, 153, 204, 255].map((k) => {
    const p = lut[k] ?? 0;
    return `rgb(${p & 255} ${(p >> 8) & 255} ${(p >> 16) & 255})`;
  });
  return <div className="legend-bar" style={{ background: `linear-gradient(to right, ${stops.join(", ")})` }} />;
}
