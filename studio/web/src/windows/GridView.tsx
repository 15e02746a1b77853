// A grid of cells, drawn only where it is in sight: some lit with a text, one under the cursor. Mouse and arrow keys tell
// which cell is meant.
import { useEffect, useRef } from "react";
import { useSize } from "../watch/useSize";

export interface Light {
  readonly text: string;
  /** 0 to 1: how strongly it is lit. */
  readonly strength: number;
}

interface Props {
  readonly label: string;
  readonly rows: number;
  readonly columns: number;
  readonly tone: "inputs" | "cells";
  readonly cursor: readonly [number, number] | null;
  readonly values: Float32Array | null;
  readonly light: (row: number, column: number) => Light | null;
  /** A part that must be in sight, as rows and columns. */
  readonly show: { readonly top: number; readonly bottom: number; readonly left: number; readonly right: number } | null;
  readonly onCursor: (at: [number, number] | null) => void;
}

/** The side of a cell: wide enough for a weight, so that a big grid scrolls rather than lose them. */
const LEAST = 28;
const MOST = 46;

export function GridView(props: Props): React.JSX.Element {
  const { label, rows, columns, cursor, show, onCursor } = props;
  const [box, size] = useSize<HTMLDivElement>();
  const canvas = useRef<HTMLCanvasElement>(null);
  const cell = Math.max(LEAST, Math.min(MOST, Math.floor((size.width - 2) / columns), Math.floor((size.height - 2) / rows)));

  useEffect(() => {
    const el = box.current;
    if (!el || !show) return;
    if (show.top * cell < el.scrollTop || show.bottom * cell > el.scrollTop + el.clientHeight) el.scrollTop = show.top * cell - 20;
    if (show.left * cell < el.scrollLeft || show.right * cell > el.scrollLeft + el.clientWidth) el.scrollLeft = show.left * cell - 20;
  }, [show, cell, box]);

  useEffect(() => {
    const el = box.current;
    const draw = (): void => {
      if (el && canvas.current) drawGrid(canvas.current, el, cell, props);
    };
    draw();
    el?.addEventListener("scroll", draw);
    return () => el?.removeEventListener("scroll", draw);
  });

  function at(event: React.PointerEvent): [number, number] | null {
    const el = box.current;
    if (!el) return null;
    const edge = el.getBoundingClientRect();
    const row = Math.floor((event.clientY - edge.top + el.scrollTop) / cell);
    const column = Math.floor((event.clientX - edge.left + el.scrollLeft) / cell);
    return row >= 0 && row < rows && column >= 0 && column < columns ? [row, column] : null;
  }

  function onKeyDown(event: React.KeyboardEvent): void {
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    const [r, c] = cursor ?? [0, -1];
    onCursor([clamp(r + (step[0] ?? 0), rows), clamp(c + (step[1] ?? 0), columns)]);
  }

  return (
    <div
      className={`grid ${props.tone}`}
      ref={box}
      tabIndex={0}
      role="application"
      aria-label={`${label}, ${rows} by ${columns}; arrows move over it`}
      onPointerMove={(event) => onCursor(at(event))}
      onPointerLeave={() => onCursor(null)}
      onKeyDown={onKeyDown}
      data-cell={cell}
    >
      <div className="grid-all" style={{ width: columns * cell + 1, height: rows * cell + 1 }}>
        <canvas ref={canvas} />
      </div>
    </div>
  );
}

function clamp(k: number, n: number): number {
  return Math.max(0, Math.min(n - 1, k));
}

function drawGrid(canvas: HTMLCanvasElement, el: HTMLElement, cell: number, props: Props): void {
  const { rows, columns, cursor, values, light } = props;
  const ratio = devicePixelRatio;
  const width = Math.min(el.clientWidth, columns * cell + 1);
  const height = Math.min(el.clientHeight, rows * cell + 1);
  canvas.width = Math.max(1, width * ratio);
  canvas.height = Math.max(1, height * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  if (!context) return;
  const style = getComputedStyle(el);
  const colour = (name: string): string => style.getPropertyValue(name).trim();
  context.scale(ratio, ratio);
  context.font = `${Math.min(12, cell * 0.38)}px ${style.fontFamily}`;
  context.textAlign = "center";
  context.textBaseline = "middle";
  const [top, left] = [el.scrollTop, el.scrollLeft];
  const firstRow = Math.floor(top / cell);
  const firstColumn = Math.floor(left / cell);
  const lastRow = Math.min(rows, Math.ceil((top + height) / cell));
  const lastColumn = Math.min(columns, Math.ceil((left + width) / cell));
  for (let r = firstRow; r < lastRow; r += 1) {
    for (let c = firstColumn; c < lastColumn; c += 1) {
      const x = c * cell - left;
      const y = r * cell - top;
      const lit = light(r, c);
      context.fillStyle = colour("--cell");
      context.fillRect(x, y, cell, cell);
      if (lit) {
        context.globalAlpha = 0.35 + 0.65 * lit.strength;
        context.fillStyle = colour("--lit");
        context.fillRect(x, y, cell, cell);
        context.globalAlpha = 1;
      }
      context.strokeStyle = colour("--cell-line");
      context.strokeRect(x + 0.5, y + 0.5, cell, cell);
      const text = lit ? lit.text : values ? brief(values[r * columns + c]) : "";
      if (text) {
        context.fillStyle = lit ? colour("--lit-text") : colour("--cell-text");
        context.fillText(text, x + cell / 2, y + cell / 2 + 1, cell - 8);
      }
    }
  }
  if (cursor) {
    context.lineWidth = 2.5;
    context.strokeStyle = colour("--cursor");
    context.strokeRect(cursor[1] * cell - left + 1.5, cursor[0] * cell - top + 1.5, cell - 2, cell - 2);
  }
}

function brief(value: number | undefined): string {
  if (value === undefined || Number.isNaN(value)) return value === undefined ? "" : "nan";
  const size = Math.abs(value);
  if (size >= 1e4 || (size < 5e-4 && size > 0)) return value.toExponential(0);
  return String(Number(size < 1 ? value.toFixed(3) : value.toPrecision(3)));
}
