// See the windows: the cells of a pooling beside its inputs. Point at a cell and its inputs light up with their weights;
// point at an input and every cell that feeds its gradient lights up with its share.
import { useMemo, useState } from "react";
import { PanelFrame } from "../app/PanelFrame";
import { formatShape } from "../model/grammar";
import type { Binary, Side, SliceHead, Span, Windows as Answer } from "../net/types";
import type { Panel } from "../state/store";
import { useStore } from "../state/store";
import { useAnswer } from "../watch/useAnswer";
import { useVersion } from "../watch/Watch";
import { GridView } from "./GridView";
import { lightsOf, litBox } from "./lights";
import { sayCell, sayInput } from "./text";
import type { Pointed, Shown } from "./useWindow";
import { useWindow } from "./useWindow";

export function Windows({ panel }: { panel: Panel }): React.JSX.Element {
  const doc = useStore((s) => s.doc);
  const version = useVersion();
  const { value, why } = useAnswer<Answer>("windows", { doc, block: panel.block }, version);
  return (
    <PanelFrame panel={panel} title={`Windows of ${panel.block}`}>
      {why && <p className="error">{why}</p>}
      {value && <Both windows={value} block={panel.block} version={version} />}
    </PanelFrame>
  );
}

function Both({ windows, block, version }: { windows: Answer; block: string; version: string }): React.JSX.Element {
  const doc = useStore((s) => s.doc);
  const [pointed, setPointed] = useState<Pointed>(null);
  const shown = useWindow(doc, block, pointed, version);
  const gradient = windows.direction === "gradient";
  const said = !shown ? "" : shown.side === "cells" ? sayCell(shown.window, gradient) : sayInput(shown.window, gradient);
  return (
    <>
      <p className="windows-said" role="status" aria-live="polite">
        {said || "Point at a cell to see its inputs, or at an input to see every cell that feeds its gradient."}
      </p>
      <div className="windows-both">
        <OneSide name={gradient ? "dY" : "Y"} what="cells" side={windows.cells} pointed={pointed} shown={shown} version={version} onPoint={setPointed} />
        <OneSide name={gradient ? "dX" : "X"} what="inputs" side={windows.input} pointed={pointed} shown={shown} version={version} onPoint={setPointed} />
      </div>
      <p className="windows-foot">
        layout {windows.layout}
        {windows.divisor !== null ? `, every window divides by ${windows.divisor}` : ", each window divides by the inputs it covers"}
      </p>
    </>
  );
}

interface SideProps {
  readonly name: string;
  readonly what: "cells" | "inputs";
  readonly side: Side;
  readonly pointed: Pointed;
  readonly shown: Shown;
  readonly version: string;
  readonly onPoint: (pointed: Pointed) => void;
}

function OneSide({ name, what, side, pointed, shown, version, onPoint }: SideProps): React.JSX.Element {
  const sizes = side.spatial.map((axis) => side.shape[axis] ?? 1);
  const deep = sizes.length === 3;
  const [depth, setDepth] = useState(0);
  const [rows, columns] = sizes.slice(-2) as [number, number];
  const box = litBox(shown, what);
  // A window that does not reach into the slice in sight brings its first slice forward.
  const slice = deep && box && !inSpan(box[0], depth) ? (box[0]?.start ?? depth) : depth;
  const light = useMemo(() => lightsOf(shown, what), [shown, what]);
  const values = useValues(side, deep ? slice : 0, version);
  const full = (row: number, column: number): number[] => (deep ? [slice, row, column] : [row, column]);
  const mine = pointed?.side === what && (!deep || pointed.at[0] === slice) ? pointed.at.slice(-2) : null;
  const show = useMemo(() => (box ? frame(box.slice(-2)) : null), [box]);
  return (
    <section className="side" aria-label={`${what} ${name}`}>
      <h3>
        {name} <span>{what === "cells" ? "cells" : "inputs"} {formatShape(side.shape)}</span>
      </h3>
      {deep && <Depth count={sizes[0] ?? 1} slice={slice} box={box?.[0] ?? null} name={name} onChange={setDepth} />}
      <GridView
        label={`${what} of ${name}`}
        rows={rows}
        columns={columns}
        tone={what}
        cursor={mine ? [mine[0] ?? 0, mine[1] ?? 0] : null}
        values={values}
        light={(r, c) => light(full(r, c))}
        show={show}
        onCursor={(at) => {
          const next = at ? full(at[0], at[1]) : null;
          if (next?.join() !== (pointed?.side === what ? pointed.at.join() : undefined)) onPoint(next ? { side: what, at: next } : null);
        }}
      />
    </section>
  );
}

function inSpan(span: Span | undefined, k: number): boolean {
  return span !== undefined && k >= span.start && k < span.stop && (k - span.start) % span.step === 0;
}

function frame([down, across]: readonly Span[]): { top: number; bottom: number; left: number; right: number } {
  return { top: down?.start ?? 0, bottom: down?.stop ?? 0, left: across?.start ?? 0, right: across?.stop ?? 0 };
}

/** The values of one slice of the first image and channel, where they are known and the slice is small enough to read. */
function useValues(side: Side, depth: number, version: string): Float32Array | null {
  const doc = useStore((s) => s.doc);
  const axes = side.spatial.slice(-2) as [number, number];
  const [height, width] = [side.shape[axes[0]] ?? 1, side.shape[axes[1]] ?? 1];
  const index = side.shape.map((_, axis) => (side.spatial.length === 3 && axis === side.spatial[0] ? depth : 0));
  const small = height * width <= 4096 && height <= 512 && width <= 512;
  const fields = small ? { doc, block: side.block, pin: side.pin, axes, index, height, width } : null;
  const { value } = useAnswer<Binary<SliceHead>>("slice", fields, version);
  return value && value.data.length === height * width ? value.data : null;
}

interface DepthProps {
  readonly count: number;
  readonly slice: number;
  readonly box: Span | null;
  readonly name: string;
  readonly onChange: (slice: number) => void;
}

function Depth({ count, slice, box, name, onChange }: DepthProps): React.JSX.Element {
  return (
    <div className="depth">
      <label>
        slice{" "}
        <input
          type="range"
          min={0}
          max={count - 1}
          value={slice}
          aria-label={`slice of ${name}`}
          onKeyDown={(event) => event.stopPropagation()}
          onChange={(event) => onChange(Number(event.target.value))}
        />
        <output>
          D {slice}/{count - 1}
        </output>
      </label>
      {count <= 32 && (
        <span className="strip" aria-hidden="true">
          {Array.from({ length: count }, (_, k) => (
            <i key={k} className={`${k === slice ? "now" : ""} ${inSpan(box ?? undefined, k) ? "lit" : ""}`} />
          ))}
        </span>
      )}
    </div>
  );
}
