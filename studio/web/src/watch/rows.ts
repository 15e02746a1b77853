// The rows of a table that is never held as a whole: only the chunks that are looked at are asked for and kept.
import { useCallback, useEffect, useReducer, useRef } from "react";

export type Row = [type: string, name: string, value: string];

export const CHUNK = 100;
export const ROW_HEIGHT = 22;
/** Browsers draw no taller element than this; a longer table scrolls in proportion. */
const TALLEST = 15_000_000;
const KEPT = 60;

export interface Span {
  readonly first: number;
  readonly last: number;
}

export function tableHeight(total: number): number {
  return Math.min(total * ROW_HEIGHT, TALLEST);
}

/** Which rows show when the table is scrolled to `top`. */
export function visible(total: number, top: number, view: number): Span {
  const count = Math.ceil(view / ROW_HEIGHT) + 1;
  const room = tableHeight(total) - view;
  const exact = total * ROW_HEIGHT <= TALLEST;
  const first = exact ? Math.floor(top / ROW_HEIGHT) : Math.round((top / Math.max(1, room)) * Math.max(0, total - count + 1));
  const begin = Math.max(0, Math.min(first, total - 1));
  return { first: begin, last: Math.min(total, begin + count) };
}

/** Where to scroll so that a row comes first. */
export function scrollTo(total: number, row: number, view: number): number {
  if (total * ROW_HEIGHT <= TALLEST) return row * ROW_HEIGHT;
  const count = Math.ceil(view / ROW_HEIGHT) + 1;
  return (row / Math.max(1, total - count + 1)) * (tableHeight(total) - view);
}

export function chunksOf({ first, last }: Span): number[] {
  const made: number[] = [];
  for (let c = Math.floor(first / CHUNK); c * CHUNK < last; c += 1) made.push(c);
  return made;
}

export interface Rows {
  row(k: number): Row | undefined;
  want(span: Span): void;
}

export function useRows(version: string, fetch: (start: number, stop: number) => Promise<Row[] | null>, total: number): Rows {
  const [, drawn] = useReducer((n: number) => n + 1, 0);
  const kept = useRef(new Map<number, Row[]>());
  const asked = useRef(new Set<number>());
  const age = useRef(version);
  const last = useRef<Span>({ first: 0, last: 0 });

  const want = useCallback(
    (span: Span) => {
      last.current = span;
      for (const c of chunksOf(span)) {
        if (kept.current.has(c) || asked.current.has(c)) continue;
        asked.current.add(c);
        const asking = age.current;
        void fetch(c * CHUNK, Math.min(total, (c + 1) * CHUNK)).then((rows) => {
          asked.current.delete(c);
          if (!rows || asking !== age.current) return;
          kept.current.set(c, rows);
          for (const old of kept.current.keys()) if (kept.current.size > KEPT && old !== c) kept.current.delete(old);
          drawn();
        });
      }
    },
    [fetch, total],
  );

  useEffect(() => {
    age.current = version;
    kept.current.clear();
    asked.current.clear();
    want(last.current);
  }, [version, want]);

  return { want, row: (k) => kept.current.get(Math.floor(k / CHUNK))?.[k % CHUNK] };
}
