// A watch window: a block's pins, or one array as table, heat map, line and statistics, and its download.
import { useCallback, useEffect, useState } from "react";
import { Icon } from "../app/icons";
import { PanelFrame } from "../app/PanelFrame";
import type { WatchRow } from "../net/types";
import { request } from "../state/sync";
import type { Panel } from "../state/store";
import { useStore } from "../state/store";
import { HeatMap } from "./HeatMap";
import { defaultAxes } from "./index";
import { LinePlot } from "./LinePlot";
import type { Row } from "./rows";
import { Stats } from "./Stats";
import { Table } from "./Table";
import { useAnswer } from "./useAnswer";

/** What the picture shows where the heat map was not opened. */
function firstView(shape: readonly number[]): string {
  return `axes=${defaultAxes(shape).join()}&index=${shape.map(() => 0).join()}`;
}

const VIEWS = { table: "Table", heat: "Heat map", line: "Line", stats: "Statistics" } as const;
type View = keyof typeof VIEWS;

/** What makes shown values old: another run, or another page. */
export function useVersion(): string {
  return useStore((s) => `${s.run?.run ?? 0} ${s.run?.state ?? ""} ${s.revision} ${s.link}`);
}

export function Watch({ panel }: { panel: Panel }): React.JSX.Element {
  const doc = useStore((s) => s.doc);
  const stale = useStore((s) => s.stale.has(panel.block));
  const version = useVersion();
  const [pin, setPin] = useState(panel.pin);
  const { value, why } = useAnswer<{ rows: WatchRow[] }>("watch", { doc, block: panel.block }, version);
  const rows = value?.rows ?? [];
  const arrays = rows.filter((row) => row.array);
  const row = rows.find((r) => r.pin === pin);
  useEffect(() => setPin(panel.pin), [panel.pin]);
  return (
    <PanelFrame panel={panel} title={`Watch ${panel.block}${pin ? `.${pin}` : ""}`}>
      <div className="watch-bar">
        <select aria-label="what to watch" value={pin} onChange={(event) => setPin(event.target.value)}>
          <option value="">all of {panel.block}</option>
          {arrays.map((r) => (
            <option key={r.pin} value={r.pin}>
              {r.name}
            </option>
          ))}
          {pin && !row?.array && <option value={pin}>{pin}</option>}
        </select>
        {stale && <em className="stale-word">stale: run again</em>}
      </div>
      {why && <p className="error">{why}</p>}
      {pin === "" && <BlockRows rows={rows} onOpen={setPin} />}
      {pin !== "" && row?.array && <ArrayView key={`${pin} ${row.array.shape.join()}`} row={row} target={{ doc, block: panel.block, pin }} version={version} />}
      {pin !== "" && value && !row?.array && <p className="nothing">{row ? `${row.name} = ${row.value}` : `${pin} has no value yet: run the page.`}</p>}
    </PanelFrame>
  );
}

function BlockRows({ rows, onOpen }: { rows: readonly WatchRow[]; onOpen: (pin: string) => void }): React.JSX.Element {
  return (
    <>
      <div className="table-head" role="presentation">
        <span>Type</span>
        <span>Name</span>
        <span>Value</span>
      </div>
      <div className="table" role="table" aria-label="pins of the block" tabIndex={0}>
        {rows.map((row) => (
          <div className="table-row" role="row" key={row.name} onDoubleClick={() => row.array && onOpen(row.pin)}>
            <span role="cell">{row.type}</span>
            <span role="cell">
              {row.array ? (
                <button type="button" className="link" onClick={() => onOpen(row.pin)} title="unfold">
                  {row.name}
                </button>
              ) : (
                row.name
              )}
            </span>
            <span role="cell" title={row.value}>
              {row.value}
            </span>
          </div>
        ))}
      </div>
    </>
  );
}

interface ArrayProps {
  readonly row: WatchRow;
  readonly target: { readonly doc: string | null; readonly block: string; readonly pin: string };
  readonly version: string;
}

function ArrayView({ row, target, version }: ArrayProps): React.JSX.Element {
  const [view, setView] = useState<View>("table");
  const [query, setQuery] = useState("");
  const shape = row.array?.shape ?? [];
  const total = row.array?.size ?? 0;
  const { doc, block, pin } = target;
  const numeric = row.type !== "string";
  const fetchRows = useCallback(
    (start: number, stop: number) =>
      request<{ rows: Row[] }>("rows", { doc, block, pin, start, stop })
        .then((answer) => answer.rows)
        .catch(() => null),
    [doc, block, pin],
  );
  const at = new URLSearchParams({ doc: doc ?? "", block, pin }).toString();
  return (
    <>
      <div className="watch-tabs">
        <div className="pin-tabs" role="tablist" aria-label="view">
          {(Object.keys(VIEWS) as View[])
            .filter((name) => numeric || name === "table")
            .map((name) => (
              <button type="button" role="tab" key={name} aria-selected={view === name} onClick={() => setView(name)}>
                {VIEWS[name]}
              </button>
            ))}
        </div>
        <span className="saves">
          <Icon name="down" />
          <a href={`array.npy?${at}`} download={`${block}-${pin}.npy`}>
            .npy
          </a>
          <a href={`array.csv?${at}`} download={`${block}-${pin}.csv`}>
            .csv
          </a>
          {numeric && shape.length > 0 && (
            <a href={`array.png?${at}&${query || firstView(shape)}`} download={`${block}-${pin}.png`}>
              .png
            </a>
          )}
        </span>
      </div>
      {view === "table" && <Table version={version} shape={shape} total={total} fetch={fetchRows} />}
      {view === "heat" && <HeatMap target={target} shape={shape} version={version} onView={setQuery} />}
      {view === "line" && <LinePlot target={target} shape={shape} version={version} />}
      {view === "stats" && <Stats target={target} version={version} />}
    </>
  );
}
