// Keeps the server's copy of the document equal to ours, and ours equal to what the server reports.
// One put is under way at a time; edits made meanwhile go with the next. After a broken connection the document is attached
// again and what the server has not seen is sent, so neither side's restart loses work.
import type { Page } from "../model/page";
import { Connection, RequestFailed } from "../net/socket";
import type { Hello, Opened, Result, ServerEvent } from "../net/types";
import { flowOf } from "./flow";
import type { State } from "./store";
import { get, resultKey, set, toast } from "./store";

let sent: Page | null = null;
let putting: Promise<void> | null = null;
let current = 0;

const MOST_LOG = 5000;

export const connection = new Connection(new URL("ws", location.href).href.replace(/^http/, "ws").replace(/#.*/, ""), {
  opened: () => void begin(),
  lost: () => set({ link: "lost" }),
  event: onEvent,
});

export function request<T>(op: string, fields: object = {}): Promise<T> {
  return connection.request<T>(op, fields);
}

/** A request about the document; a refusal is shown to the user and gives null. */
export async function ask<T>(op: string, fields: object = {}): Promise<T | null> {
  try {
    return await request<T>(op, fields);
  } catch (error) {
    if (error instanceof RequestFailed) toast(said(error), "error");
    else throw error;
    return null;
  }
}

export function said(error: RequestFailed): string {
  return error.failure.legal ? `${error.failure.message}; ${error.failure.legal}` : error.failure.message;
}

async function begin(): Promise<void> {
  const hello = await request<Hello>("hello");
  const library = { blocks: hello.catalogue, allowed: hello.rules.allowed, lists: hello.rules.lists };
  set({ link: "open", hello, library });
  const { doc, kept } = get();
  if (doc) await again(doc, kept !== "kept");
  else await first(hello);
}

/** The document of this tab's address, the page of the command line, or a new page with the welcome card. */
async function first(hello: Hello): Promise<void> {
  const wanted = decodeURIComponent(location.hash.slice(1));
  if (wanted && hello.documents.some((info) => info.doc === wanted)) show(await request<Opened>("attach", { doc: wanted }));
  else if (hello.start) await openAs("open", { path: hello.start });
  if (get().doc) return;
  show(await request<Opened>("new"));
  set({ welcome: true });
}

async function again(doc: string, unsent: boolean): Promise<void> {
  const mine = get().page;
  let opened: Opened;
  try {
    opened = await request<Opened>("attach", { doc });
  } catch {
    opened = await request<Opened>("new", { name: mine.name });
    unsent = true;
  }
  if (!unsent) {
    show(opened, get());
    return;
  }
  set({ doc: opened.doc, revision: opened.revision, ...runOf(opened) });
  location.hash = encodeURIComponent(opened.doc);
  sent = null;
  send();
}

/** Opens a document in this tab by any of the requests that answer with one. */
export async function openAs(op: "new" | "open" | "example" | "attach", fields: object = {}): Promise<boolean> {
  await settled();
  const before = get().doc;
  const opened = await ask<Opened>(op, fields);
  if (!opened) return false;
  if (before && before !== opened.doc) void ask("leave", { doc: before });
  show(opened);
  return true;
}

function show(opened: Opened, keep?: State): void {
  sent = opened.page;
  set({
    doc: opened.doc,
    revision: opened.revision,
    file: opened.file,
    dirty: opened.dirty,
    kept: "kept",
    page: opened.page,
    history: keep?.history ?? { past: [], future: [], last: "" },
    ...flowOf(opened.page, keep?.nodes ?? [], keep?.edges ?? []),
    checks: opened.checks,
    ...runOf(opened),
    explanation: opened.explanation,
    panels: keep?.panels ?? [],
    focus: null,
    welcome: false,
  });
  location.hash = encodeURIComponent(opened.doc);
}

/** What the server knows of the last run: after a restart nothing, whatever this tab still shows. */
function runOf(opened: Opened): Pick<State, "log" | "run" | "states" | "results" | "stale"> {
  current = opened.run?.run ?? 0;
  return {
    log: opened.run ? opened.log : opened.notes,
    run: opened.run,
    states: new Map(opened.states.map((s) => [s.block, s])),
    results: byKey(opened.results),
    stale: new Set(opened.stale),
  };
}

function byKey(results: readonly Result[]): Map<string, Result> {
  return new Map(results.map((result) => [resultKey(result.block, result.pin), result]));
}

/** Sends the page if the server has not seen it. */
export function send(): void {
  if (get().page === sent) return;
  set({ kept: "sending" });
  putting ??= put().finally(() => {
    putting = null;
  });
}

async function put(): Promise<void> {
  for (let { page, doc, revision } = get(); page !== sent && doc; { page, doc, revision } = get()) {
    try {
      const answer = await request<{ revision: number }>("put", { doc, revision, page });
      sent = page;
      set((state) => ({ revision: Math.max(state.revision, answer.revision) }));
    } catch (error) {
      if (!(error instanceof RequestFailed)) throw error;
      if (error.failure.kind === "conflict") return;
      set({ kept: "waiting" });
      if (error.failure.kind !== "lost") toast(`not kept: ${said(error)}`, "error");
      return;
    }
  }
  set({ kept: "kept" });
}

/** Waits until the server has the page as it is now. */
export async function settled(): Promise<void> {
  send();
  await putting;
}

function onEvent(event: ServerEvent): void {
  const state = get();
  if (event.doc !== state.doc) return;
  switch (event.event) {
    case "page":
      if (event.revision <= state.revision && state.page === sent) return;
      sent = event.page;
      set({ page: event.page, revision: event.revision, ...flowOf(event.page, state.nodes, state.edges), kept: "kept", dirty: true });
      return;
    case "checks":
      if (event.revision >= state.revision) set({ checks: event.log, stale: new Set(event.stale) });
      return;
    case "run":
      clearFor(event.run.run);
      set({ run: event.run });
      return;
    case "blocks":
      clearFor(event.run);
      set((now) => ({ states: new Map([...now.states, ...event.states.map((s) => [s.block, s] as const)]) }));
      return;
    case "log":
      clearFor(event.run);
      set((now) => ({ log: [...now.log, ...event.entries].slice(-MOST_LOG) }));
      return;
    case "results":
      clearFor(event.run);
      set((now) => ({ results: new Map([...now.results, ...byKey(event.results)]) }));
      return;
    case "saved":
      set({ file: event.file, dirty: state.page !== sent });
      return;
    case "closed":
      toast("this page was closed in another tab", "error");
      void openAs("new");
  }
}

/** The first event of a new run, whichever it is, clears what the last one left. */
function clearFor(run: number): void {
  if (run === current) return;
  current = run;
  set({ log: [], states: new Map(), results: new Map(), stale: new Set() });
}

/** A tab that is closed before the server has its edits asks first. */
export function guardUnload(): void {
  addEventListener("beforeunload", (event) => {
    if (get().kept !== "kept") event.preventDefault();
  });
}
