// The elements along one axis, or all of them, as a line; where many fall on one pixel, as a band from least to greatest.
import { useState } from "react";
import type { Binary, LineHead } from "../net/types";
import { AxisChoice, Sliders } from "./Axes";
import { short, ticks } from "./index";
import { useAnswer } from "./useAnswer";
import { useSize } from "./useSize";

interface Props {
  readonly target: { readonly doc: string | null; readonly block: string; readonly pin: string };
  readonly shape: readonly number[];
  readonly version: string;
}

const LEFT = 56;
const RIGHT = 10;
const TOP = 10;
const BOTTOM = 22;

export function LinePlot({ target, shape, version }: Props): React.JSX.Element {
  const [axis, setAxis] = useState(-1);
  const [index, setIndex] = useState<number[]>(() => shape.map(() => 0));
  const [box, size] = useSize<HTMLDivElement>();
  const points = Math.max(16, Math.min(2000, Math.round((size.width - LEFT - RIGHT) / 50) * 50));
  const { value: line, why } = useAnswer<Binary<LineHead>>("line", size.width > 1 ? { ...target, axis, index, points } : null, version);
  return (
    <div className="plot">
      <div className="controls">
        {shape.length > 1 && <AxisChoice name="along" shape={shape} value={axis} all="all elements" onChange={setAxis} />}
        {axis >= 0 && <Sliders shape={shape} skip={[axis]} index={index} onChange={setIndex} />}
      </div>
      {why && <p className="error">{why}</p>}
      <div className="plot-box" ref={box}>
        {line && <Curve line={line} width={size.width} height={size.height} />}
      </div>
    </div>
  );
}

/** From the least to the greatest value of every bin and back; bins without a finite value are left out. */
function outline(least: Float32Array, most: Float32Array, x: (k: number) => number, y: (v: number) => number): string {
  const bins = Array.from(least.keys()).filter((k) => Number.isFinite(least[k]) && Number.isFinite(most[k]));
  const point = (values: Float32Array, k: number): string => `${x(k).toFixed(1)} ${y(values[k] ?? 0).toFixed(1)}`;
  const there = bins.map((k) => point(most, k));
  const back = bins.reverse().map((k) => point(least, k));
  return there.length ? `M${[...there, ...back].join("L")}Z` : "";
}

function Curve({ line, width, height }: { line: Binary<LineHead>; width: number; height: number }): React.JSX.Element {
  const { head, data } = line;
  const n = head.shape[1];
  const [at, setAt] = useState<number | null>(null);
  const low = head.min ?? 0;
  const high = head.max ?? 0;
  const pad = high > low ? (high - low) * 0.05 : Math.abs(low) || 1;
  const x = (k: number): number => LEFT + (n > 1 ? k / (n - 1) : 0.5) * (width - LEFT - RIGHT);
  const y = (v: number): number => TOP + (1 - (v - low + pad) / (high - low + 2 * pad)) * (height - TOP - BOTTOM);
  const least = data.subarray(0, n);
  const most = data.subarray(n, 2 * n);
  const path = (values: Float32Array): string => {
    let made = "";
    let broken = true;
    values.forEach((value, k) => {
      if (Number.isFinite(value)) made += `${broken ? "M" : "L"}${x(k).toFixed(1)} ${y(value).toFixed(1)}`;
      broken = !Number.isFinite(value);
    });
    return made;
  };
  const band = head.step > 1 ? outline(least, most, x, y) : "";
  const place = (k: number): number => head.start + k * head.step;
  const tell = (k: number): string =>
    least[k] === most[k] ? `${place(k)}: ${short(least[k])}` : `${place(k)}–${place(k + 1) - 1}: ${short(least[k])} … ${short(most[k])}`;
  return (
    <svg
      width={width}
      height={height}
      role="img"
      tabIndex={0}
      aria-label={`line of ${head.stop - head.start} elements from ${short(low)} to ${short(high)}`}
      onPointerMove={(event) => {
        const left = event.currentTarget.getBoundingClientRect().left;
        const share = (event.clientX - left - LEFT) / (width - LEFT - RIGHT);
        setAt(Math.max(0, Math.min(n - 1, Math.round(share * (n - 1)))));
      }}
      onPointerLeave={() => setAt(null)}
      onKeyDown={(event) => {
        const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
        if (!step) return;
        event.stopPropagation();
        setAt(Math.max(0, Math.min(n - 1, (at ?? 0) + step)));
      }}
    >
      {ticks(low - pad, high + pad, Math.max(2, Math.floor(height / 50))).map((v) => (
        <g className="tick" key={v}>
          <line x1={LEFT} x2={width - RIGHT} y1={y(v)} y2={y(v)} />
          <text x={LEFT - 6} y={y(v) + 4} textAnchor="end">
            {short(v, 4)}
          </text>
        </g>
      ))}
      <text className="axis" x={LEFT} y={height - 6}>
        {head.start}
      </text>
      <text className="axis" x={width - RIGHT} y={height - 6} textAnchor="end">
        {head.stop - 1}
      </text>
      {band && <path className="band" d={band} />}
      <path className="curve" d={path(most)} />
      {band && <path className="curve" d={path(least)} />}
      {n <= 60 && Array.from(most, (v, k) => Number.isFinite(v) && <circle className="point" key={k} cx={x(k)} cy={y(v)} r={2.5} />)}
      {at !== null && (
        <g className="probe">
          <line x1={x(at)} x2={x(at)} y1={TOP} y2={height - BOTTOM} />
          <text x={Math.min(x(at) + 6, width - 150)} y={TOP + 12}>
            {tell(at)}
          </text>
        </g>
      )}
    </svg>
  );
}
