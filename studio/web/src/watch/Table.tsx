// Type, Name and Value of every element, however many: only the rows in sight are asked for and drawn.
import { useCallback, useEffect, useLayoutEffect, useRef, useState } from "react";
import { parseIndex } from "./index";
import type { Row, Span } from "./rows";
import { ROW_HEIGHT, scrollTo, tableHeight, useRows, visible } from "./rows";

interface Props {
  readonly version: string;
  readonly shape: readonly number[];
  readonly total: number;
  readonly fetch: (start: number, stop: number) => Promise<Row[] | null>;
}

export function Table({ version, shape, total, fetch }: Props): React.JSX.Element {
  const box = useRef<HTMLDivElement>(null);
  const [span, setSpan] = useState<Span>({ first: 0, last: 0 });
  const [top, setTop] = useState(0);
  const rows = useRows(version, fetch, total);
  const { want } = rows;

  const look = useCallback(() => {
    const el = box.current;
    if (!el) return;
    setTop(el.scrollTop);
    setSpan(visible(total, el.scrollTop, el.clientHeight));
  }, [total]);

  useLayoutEffect(() => {
    look();
    const watcher = new ResizeObserver(look);
    if (box.current) watcher.observe(box.current);
    return () => watcher.disconnect();
  }, [look]);

  // While the user flings the scroll bar past many chunks, none of those in between is asked for.
  useEffect(() => {
    const timer = setTimeout(() => want(span), 20);
    return () => clearTimeout(timer);
  }, [span, want]);

  function go(row: number): void {
    const el = box.current;
    if (el) el.scrollTop = scrollTo(total, Math.max(0, Math.min(total - 1, row)), el.clientHeight);
  }

  function onKeyDown(event: React.KeyboardEvent): void {
    const page = span.last - span.first - 2;
    const to = { ArrowDown: span.first + 1, ArrowUp: span.first - 1, PageDown: span.first + page, PageUp: span.first - page, Home: 0, End: total }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    go(to);
  }

  const shown = [];
  for (let k = span.first; k < span.last; k += 1) shown.push(<TableRow key={k} k={k} row={rows.row(k)} />);
  const height = tableHeight(total);
  const offset = total * ROW_HEIGHT === height ? span.first * ROW_HEIGHT : top;
  return (
    <>
      {total > 50 && <GoTo shape={shape} total={total} onGo={go} />}
      <div className="table-head" role="presentation">
        <span>Type</span>
        <span>Name</span>
        <span>Value</span>
      </div>
      <div className="table" ref={box} onScroll={look} onKeyDown={onKeyDown} tabIndex={0} role="table" aria-rowcount={total} aria-label="values">
        <div style={{ height, position: "relative" }}>
          <div className="rows" style={{ transform: `translateY(${offset}px)` }} role="rowgroup">
            {shown}
          </div>
        </div>
      </div>
    </>
  );
}

function TableRow({ k, row }: { k: number; row: Row | undefined }): React.JSX.Element {
  return (
    <div className={`table-row ${row ? "" : "coming"}`} role="row" aria-rowindex={k + 1} data-row={k}>
      <span role="cell">{row?.[0] ?? ""}</span>
      <span role="cell">{row?.[1] ?? "…"}</span>
      <span role="cell">{row?.[2] ?? ""}</span>
    </div>
  );
}

function GoTo({ shape, total, onGo }: { shape: readonly number[]; total: number; onGo: (row: number) => void }): React.JSX.Element {
  const [text, setText] = useState("");
  const row = parseIndex(text, shape);
  return (
    <form
      className="goto"
      onSubmit={(event) => {
        event.preventDefault();
        if (row !== null) onGo(row);
      }}
    >
      <label>
        go to{" "}
        <input
          type="text"
          value={text}
          placeholder={shape.map(() => "[0]").join("")}
          aria-invalid={text !== "" && row === null}
          spellCheck={false}
          onChange={(event) => setText(event.target.value)}
        />
      </label>
      <span>{total.toLocaleString("en")} elements</span>
    </form>
  );
}
