// A block in enuSpace's look: a dark rounded box with an amber border and a blue title; pins down the left side in
// enuSpace's order, outputs on the right edge, results on the lower edge; above it its state, time and error.
// Only pins that wires may meet are handles: React Flow asks each of them at every move.
// While blocks are dragged nothing in here is drawn again: one look into the store for each block, compared field by field.
import type { NodeProps } from "@xyflow/react";
import { Handle, Position } from "@xyflow/react";
import { memo } from "react";
import { useShallow } from "zustand/react/shallow";
import { formatShape } from "../model/grammar";
import type { Block, Pin } from "../model/page";
import { unwirable } from "../model/rules";
import type { BlockState, LogEntry, Result } from "../net/types";
import { problemsOf, wiredPins } from "../state/derived";
import { openPanel, pointAt } from "../state/panels";
import type { BlockNode as Node, State } from "../state/store";
import { resultKey, toast, useStore } from "../state/store";
import { badgeOf, firstValues, label, preview, shorten } from "./looks";

interface Look {
  readonly known: boolean;
  readonly state: BlockState | undefined;
  readonly stale: boolean;
  readonly running: boolean;
  readonly wired: string;
  readonly problems: ReadonlyMap<string, LogEntry>;
  readonly results: ReadonlyMap<string, Result>;
}

function look(s: State, block: Block): Look {
  return {
    known: s.library.blocks.some((def) => def.name === block.symbol),
    state: s.states.get(block.id),
    stale: s.stale.has(block.id),
    running: s.run?.state === "running" && s.run.current === block.id,
    wired: wiredPins(s.page.wires).get(block.id) ?? "",
    problems: problemsOf(s.checks),
    results: s.results,
  };
}

export const BlockNode = memo(
  function BlockNode({ data: { block }, selected }: NodeProps<Node>): React.JSX.Element {
    const seen = useStore(useShallow((s) => look(s, block)));
    const left = block.pins.filter((pin) => pin.kind === "input" || pin.kind === "const" || pin.kind === "");
    const right = block.pins.filter((pin) => pin.kind === "output");
    const below = block.pins.filter((pin) => pin.kind === "result");
    const phase = seen.running ? "running" : seen.stale ? "stale" : (seen.state?.state ?? "idle");
    const looks = `block ${phase} ${selected ? "selected" : ""} ${seen.known ? "" : "unknown"}`;
    return (
      <div className={looks} data-block={block.id} data-state={phase}>
        <BadgeButton block={block} seen={seen} />
        <header className="block-title">
          <span className="block-symbol">{shorten(block.symbol, 40) || "(no name)"}</span>
          <span className="block-id" title={block.id}>
            {shorten(block.id, 24, 8)}
          </span>
        </header>
        <div className="block-body">
          <ul className="pins left">
            {left.map((pin) => (
              <LeftPin key={pin.name} block={block} pin={pin} seen={seen} />
            ))}
          </ul>
          <ul className="pins right">
            {right.map((pin) => (
              <li key={pin.name} className="pin output" data-pin={pin.name} onDoubleClick={watching(block.id, `result_${pin.name}`, pin)}>
                <span className="pin-name">{pin.name}</span>
                <Handle id={pin.name} type="source" position={Position.Right} className="dot right output" />
              </li>
            ))}
          </ul>
        </div>
        {below.length > 0 && (
          <ul className="pins below">
            {below.map((pin, k) => (
              <ResultPin key={pin.name} block={block} pin={pin} at={(k + 1) / (below.length + 1)} seen={seen} />
            ))}
          </ul>
        )}
      </div>
    );
  },
  (before, now) => before.data.block === now.data.block && before.selected === now.selected,
);

function watching(block: string, pin: string, of: Pin): (event: React.MouseEvent) => void {
  return (event) => {
    event.stopPropagation();
    openPanel("watch", block, of.interface === "Status" ? "" : pin);
  };
}

function LeftPin({ block, pin, seen }: { block: Block; pin: Pin; seen: Look }): React.JSX.Element {
  const problem = seen.problems.get(resultKey(block.id, pin.name));
  const wired = seen.wired.includes(`${pin.name}\n`);
  const scope = pin.interface === "Scope" || pin.name === "scope";
  const colour = scope ? "scope" : pin.kind === "const" ? "const" : wired ? "input wired" : "input";
  const tensor = pin.kind === "const" && pin.interface.includes("Initializer");
  return (
    <li
      className={`pin ${colour} ${problem ? "bad" : ""}`}
      data-pin={pin.name}
      title={problem?.message}
      onDoubleClick={tensor ? watching(block.id, pin.name, pin) : undefined}
    >
      {scope || pin.kind === "const" ? (
        <Dead pin={pin} className={`dot left ${colour}`} />
      ) : (
        <Handle id={pin.name} type="target" position={Position.Left} className={`dot left ${colour}`} />
      )}
      <span className="pin-name">{label(pin)}</span>
      {pin.kind === "const" && <span className="pin-value">{preview(pin)}</span>}
    </li>
  );
}

/** A pin that no wire meets: who tries to draw one from it is told why, and the block stays where it is. */
function Dead({ pin, className, left }: { pin: Pin; className: string; left?: string }): React.JSX.Element {
  return <i className={`${className} nodrag`} style={left ? { left } : undefined} onPointerDown={(event) => explain(event.currentTarget, pin)} />;
}

function explain(dot: HTMLElement, pin: Pin): void {
  const drawn = (): void => toast(`no wire: ${unwirable(pin) ?? "this block cannot run here"}`, "error");
  dot.addEventListener("pointerleave", drawn, { once: true });
  addEventListener("pointerup", () => dot.removeEventListener("pointerleave", drawn), { once: true });
}

function ResultPin({ block, pin, at, seen }: { block: Block; pin: Pin; at: number; seen: Look }): React.JSX.Element {
  const result = seen.results.get(resultKey(block.id, pin.name));
  return (
    <li className={`pin result ${result ? "filled" : ""}`} data-pin={pin.name} onDoubleClick={watching(block.id, pin.name, pin)}>
      <Dead pin={pin} className="dot bottom result" left={`${100 * at}%`} />
      <span className="pin-name">
        {pin.name}
        {result ? formatShape(result.shape) : ""}
      </span>
      {result && <span className="pin-value">{firstValues(result)}</span>}
    </li>
  );
}

function BadgeButton({ block, seen }: { block: Block; seen: Look }): React.JSX.Element | null {
  const problem = seen.problems.get(block.id);
  const badge = badgeOf(seen.state, seen.running, seen.stale, problem);
  if (!badge) return null;
  return (
    <button
      type="button"
      className={`badge ${badge.tone} nodrag`}
      title={badge.title}
      aria-label={`${block.id}: ${badge.title}`}
      onClick={() => pointAt(block.id, problem?.pin ?? "")}
    >
      {badge.text}
    </button>
  );
}
