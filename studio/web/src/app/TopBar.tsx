// The bar at the top: the page and whether it is safe, files, undo, run, and what else can be opened.
import { useEffect, useState } from "react";
import { duration } from "../canvas/looks";
import { redo, renamePage, undo } from "../state/edit";
import { openDialog, setTheme } from "../state/panels";
import { run, step, stop } from "../state/run";
import { openAs } from "../state/sync";
import { useStore } from "../state/store";
import type { IconName } from "./icons";
import { Icon } from "./icons";

interface ButtonProps {
  readonly icon: IconName;
  readonly label: string;
  readonly keys?: string;
  readonly text?: boolean;
  readonly tone?: string;
  readonly disabled?: boolean;
  readonly onClick: () => void;
}

function Button({ icon, label, keys, text, tone = "", disabled = false, onClick }: ButtonProps): React.JSX.Element {
  const title = keys ? `${label} (${keys})` : label;
  return (
    <button type="button" className={`tool ${tone}`} title={title} aria-label={label} disabled={disabled} onClick={onClick}>
      <Icon name={icon} />
      {text && <span>{label}</span>}
    </button>
  );
}

export function TopBar(): React.JSX.Element {
  const canUndo = useStore((s) => s.history.past.length > 0);
  const canRedo = useStore((s) => s.history.future.length > 0);
  const theme = useStore((s) => s.theme);
  return (
    <header className="topbar" role="toolbar" aria-label="main tools">
      <span className="brand">poolgrad studio</span>
      <PageName />
      <div className="group">
        <Button icon="file" label="New" onClick={() => void openAs("new")} />
        <Button icon="folder" label="Open" keys="Ctrl+O" onClick={() => openDialog({ kind: "files", mode: "open" })} />
        <Button icon="save" label="Save" keys="Ctrl+S" onClick={() => openDialog({ kind: "files", mode: "save" })} />
        <Button icon="bulb" label="Example" text onClick={() => void openAs("example", { which: "documented" })} />
      </div>
      <div className="group">
        <Button icon="undo" label="Undo" keys="Ctrl+Z" disabled={!canUndo} onClick={undo} />
        <Button icon="redo" label="Redo" keys="Ctrl+Shift+Z" disabled={!canRedo} onClick={redo} />
      </div>
      <RunTools />
      <div className="group end">
        <Button icon="code" label="As code" text keys="K" onClick={() => openDialog({ kind: "code" })} />
        <Button
          icon={theme === "dark" ? "sun" : "moon"}
          label={theme === "dark" ? "light colours" : "dark colours"}
          onClick={() => setTheme(theme === "dark" ? "light" : "dark")}
        />
        <Button icon="help" label="Keys and help" keys="?" onClick={() => openDialog({ kind: "help" })} />
      </div>
    </header>
  );
}

function PageName(): React.JSX.Element {
  const name = useStore((s) => s.page.name);
  const [text, setText] = useState(name);
  useEffect(() => setText(name), [name]);
  return (
    <div className="page-name">
      <input
        type="text"
        aria-label="name of the page"
        value={text}
        spellCheck={false}
        size={Math.max(8, Math.min(30, text.length))}
        onChange={(event) => setText(event.target.value)}
        onBlur={() => renamePage(text)}
        onKeyDown={(event) => {
          if (event.key === "Enter") event.currentTarget.blur();
          if (event.key === "Escape") setText(name);
        }}
      />
      <Kept />
    </div>
  );
}

function Kept(): React.JSX.Element {
  const link = useStore((s) => s.link);
  const kept = useStore((s) => s.kept);
  const file = useStore((s) => s.file);
  const dirty = useStore((s) => s.dirty);
  const [text, tone] =
    link === "lost"
      ? ["server away: trying again", "bad"]
      : kept === "sending"
        ? ["keeping…", ""]
        : kept === "waiting"
          ? ["not kept yet", "bad"]
          : dirty
            ? [file ? `${file}: changes autosaved` : "autosaved", ""]
            : [file ? `saved as ${file}` : "autosaved", "good"];
  return (
    <span className={`kept ${tone}`} role="status" data-kept={kept} data-dirty={dirty}>
      {text}
    </span>
  );
}

function RunTools(): React.JSX.Element {
  const state = useStore((s) => s.run);
  const blocks = useStore((s) => s.page.blocks.length);
  const busy = state?.state === "running";
  const open = busy || state?.state === "paused";
  return (
    <div className="group run">
      <Button icon="play" label={state?.state === "paused" ? "Continue" : "Run"} text keys="Ctrl+Enter" tone="go" disabled={busy || blocks === 0} onClick={() => void run()} />
      <Button icon="step" label="Step" text keys="Ctrl+Shift+Enter" disabled={busy || blocks === 0} onClick={() => void step()} />
      <Button icon="stop" label="Stop" text keys="Ctrl+." tone="halt" disabled={!open} onClick={() => void stop()} />
      <Progress />
    </div>
  );
}

function Progress(): React.JSX.Element | null {
  const state = useStore((s) => s.run);
  if (!state) return null;
  const words = { running: "running", paused: "paused", done: "done", failed: "failed", cancelled: "stopped" }[state.state];
  const open = state.state === "running" || state.state === "paused";
  const cycle = state.cycle > 1 ? `, cycle ${state.cycle}` : "";
  return (
    <span className={`progress ${state.state}`} role="status" data-run={state.state} data-number={state.run}>
      {open && <progress value={state.done} max={Math.max(1, state.total)} aria-label="blocks done" />}
      <span>
        {words}
        {open ? ` ${state.done}/${state.total}` : ""}
        {open && state.current ? `: ${state.current}` : ""}
        {cycle} <em>{duration(state.seconds)}</em>
      </span>
    </span>
  );
}
