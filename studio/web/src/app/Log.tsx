// The message pane: what is wrong with the page now, and what the last run said, each line with its block.
import { useEffect, useRef, useState } from "react";
import type { LogEntry } from "../net/types";
import { pointAt } from "../state/panels";
import { useStore } from "../state/store";

export function Log(): React.JSX.Element {
  const checks = useStore((s) => s.checks);
  const log = useStore((s) => s.log);
  const ran = useStore((s) => s.run);
  const [tab, setTab] = useState<"log" | "checks">("checks");
  const [open, setOpen] = useState(true);
  const body = useRef<HTMLDivElement>(null);
  const run = ran?.run;
  useEffect(() => setTab(run ? "log" : "checks"), [run]);
  useEffect(() => {
    if (body.current) body.current.scrollTop = tab === "log" ? body.current.scrollHeight : 0;
  }, [log, tab]);
  const counts = { log: log.length, checks: checks.length };
  const entries = tab === "log" ? log : checks;
  const worst = checks.some((e) => e.severity === "error") ? "error" : checks.length ? "warning" : "fine";
  return (
    <section className={`log ${open ? "" : "closed"}`} aria-label="messages">
      <div className="log-tabs" role="tablist">
        {(["log", "checks"] as const).map((name) => (
          <button
            key={name}
            type="button"
            role="tab"
            aria-selected={tab === name && open}
            className={name === "checks" ? worst : ""}
            onClick={() => {
              setTab(name);
              setOpen(true);
            }}
          >
            {name === "log" ? "Log" : "Checks"} <span className="count">{counts[name]}</span>
          </button>
        ))}
        <button type="button" className="fold" onClick={() => setOpen(!open)} aria-expanded={open} aria-label="messages">
          {open ? "▾" : "▴"}
        </button>
      </div>
      {open && (
        <div className="log-body" ref={body} role="log" aria-label={tab} tabIndex={0}>
          {entries.length === 0 && <p className="nothing">{tab === "log" ? (run ? "Nothing was said yet." : "Nothing was run yet.") : "Nothing is wrong with this page."}</p>}
          {entries.map((entry, k) => (
            <Line key={k} entry={entry} />
          ))}
        </div>
      )}
    </section>
  );
}

function Line({ entry }: { entry: LogEntry }): React.JSX.Element {
  return (
    <div className={`line ${entry.severity}`}>
      <span className="severity">{entry.severity}</span>
      {entry.block ? (
        <button type="button" className="who" onClick={() => pointAt(entry.block, entry.pin)} title="show this block">
          {entry.block}
        </button>
      ) : (
        <span className="who">page</span>
      )}
      <span className="message">{entry.message}</span>
    </div>
  );
}
