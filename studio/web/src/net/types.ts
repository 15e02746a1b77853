// What travels: the server's protocol, as types. studio/PROTOCOL.md is the text behind them.
import type { BlockDef } from "../model/blocks";
import type { Page, Pin } from "../model/page";

export interface Failure {
  kind: "protocol" | "value" | "limit" | "conflict" | "exists" | "file" | "busy" | "internal" | "lost";
  message: string;
  legal?: string;
}

export interface LogEntry {
  severity: "info" | "warning" | "error";
  block: string;
  message: string;
  pin: string;
}

export type RunPhase = "running" | "paused" | "done" | "failed" | "cancelled";

export interface RunState {
  run: number;
  state: RunPhase;
  current: string | null;
  cycle: number;
  cycles: number;
  done: number;
  total: number;
  seconds: number;
}

export interface BlockState {
  block: string;
  state: "idle" | "done" | "failed" | "blocked" | "cancelled";
  seconds: number;
  error: string;
  cycle: number;
}

export interface Result {
  block: string;
  pin: string;
  type: string;
  dtype: string;
  shape: number[];
  size: number;
  bytes: number;
  /** Its first elements, as many as a pin shows. */
  head: string[];
}

export interface DocumentInfo {
  doc: string;
  name: string;
  file: string | null;
  dirty: boolean;
  blocks: number;
  edited: number;
}

export interface Explanation {
  title: string;
  paragraphs: string[];
  twin: "documented" | "corrected";
}

export interface Opened {
  doc: string;
  revision: number;
  file: string | null;
  dirty: boolean;
  page: Page;
  log: LogEntry[];
  checks: LogEntry[];
  states: BlockState[];
  results: Result[];
  stale: string[];
  run: RunState | null;
  explanation: Explanation | null;
  notes: LogEntry[];
}

export interface Hello {
  protocol: number;
  version: string;
  folder: string;
  start: string | null;
  autosave: boolean;
  catalogue: BlockDef[];
  inputs: { kind: "npy" | "image" | "random"; title: string; summary: string }[];
  rules: { allowed: Record<string, string[]>; lists: string[] };
  palettes: Record<string, string>;
  colours: Record<string, string>;
  limits: { message: number; upload: number; elements: number; rows: number; points: number; text: number };
  documents: DocumentInfo[];
}

export interface WatchRow {
  type: string;
  name: string;
  value: string;
  pin: string;
  array: null | { shape: number[]; size: number; dtype: string };
}

export interface Statistics {
  dtype: string;
  shape: number[];
  size: number;
  bytes: number;
  nan: number;
  infinite: number;
  zeros: number;
  min: number | null;
  max: number | null;
  mean: number | null;
  std: number | null;
  sum: number | null;
  histogram: { counts: number[]; edges: number[] } | null;
}

export interface SliceHead {
  shape: [number, number];
  full: [number, number];
  step: [number, number];
  min: number | null;
  max: number | null;
}

export interface LineHead {
  shape: [number, number];
  start: number;
  stop: number;
  step: number;
  min: number | null;
  max: number | null;
}

export interface Binary<Head> {
  head: Head;
  data: Float32Array;
}

export interface Side {
  block: string;
  pin: string;
  shape: number[];
  spatial: number[];
}

export interface Windows {
  direction: "forward" | "gradient";
  layout: string;
  input: Side;
  cells: Side;
  divisor: number | null;
}

export interface Span {
  start: number;
  stop: number;
  step: number;
}

export interface CellWindow {
  cell: number[];
  box: Span[];
  inputs: number;
  divisor: number;
  weight: string;
  share: number;
}

export interface InputWindow {
  input: number[];
  box: Span[];
  cells: number[][];
  weights: string[];
  shares: number[];
  count: number;
  total: number;
}

export interface FileEntry {
  name: string;
  kind: "folder" | "page" | "array" | "image";
  size: number;
  modified: number;
}

export interface Code {
  text: string;
  notes: string[];
  files: { name: string; url: string }[];
}

export interface MadeInput {
  symbol: string;
  pins: Record<string, Pick<Pin, "type" | "shape" | "value" | "data">>;
  shape: number[];
  dtype: string;
  note: string;
}

export type ServerEvent =
  | { event: "page"; doc: string; revision: number; page: Page }
  | { event: "checks"; doc: string; revision: number; log: LogEntry[]; stale: string[] }
  | { event: "run"; doc: string; run: RunState }
  | { event: "blocks"; doc: string; run: number; states: BlockState[] }
  | { event: "log"; doc: string; run: number; entries: LogEntry[] }
  | { event: "results"; doc: string; run: number; results: Result[] }
  | { event: "saved"; doc: string; file: string; revision: number }
  | { event: "closed"; doc: string };
