// A block in enuSpace's look: a dark rounded box with an amber border and a blue title; pins down the left side in
// enuSpace's order, outputs on the right edge, results on the lower edge; above it its state, time and error.
import type { NodeProps } from "@xyflow/react";
import { Handle, Position } from "@xyflow/react";
import { memo } from "react";
import { formatShape } from "../model/grammar";
import type { Block, Pin } from "../model/page";
import { useStore, resultKey } from "../state/store";
import type { BlockNode as Node } from "../state/store";
import { openPanel, pointAt } from "../state/panels";
import { problemsOf, wiredPins } from "../state/derived";
import { badgeOf, label, preview } from "./looks";

export const BlockNode = memo(function BlockNode({ data: { block }, selected }: NodeProps<Node>): React.JSX.Element {
  const known = useStore((s) => s.library.blocks.some((def) => def.name === block.symbol));
  const state = useStore((s) => s.states.get(block.id));
  const stale = useStore((s) => s.stale.has(block.id));
  const wired = useStore((s) => wiredPins(s.page.wires).get(block.id));
  const left = block.pins.filter((pin) => pin.kind === "input" || pin.kind === "const" || pin.kind === "");
  const right = block.pins.filter((pin) => pin.kind === "output");
  const below = block.pins.filter((pin) => pin.kind === "result");
  const running = useStore((s) => s.run?.state === "running" && s.run.current === block.id);
  const phase = running ? "running" : stale ? "stale" : (state?.state ?? "idle");
  return (
    <div className={`block ${phase} ${selected ? "selected" : ""} ${known ? "" : "unknown"}`} data-block={block.id} data-state={phase}>
      <Badges block={block} />
      <header className="block-title">
        <span className="block-symbol">{block.symbol || "(no name)"}</span>
        <span className="block-id">{block.id}</span>
      </header>
      <div className="block-body">
        <ul className="pins left">
          {left.map((pin) => (
            <LeftPin key={pin.name} block={block} pin={pin} wired={wired?.includes(`${pin.name}\n`) ?? false} />
          ))}
        </ul>
        <ul className="pins right">
          {right.map((pin) => (
            <li key={pin.name} className="pin output" data-pin={pin.name} onDoubleClick={watching(block.id, `result_${pin.name}`, pin)}>
              <span className="pin-name">{pin.name}</span>
              <Handle id={pin.name} type="source" position={Position.Right} className="dot output" />
            </li>
          ))}
        </ul>
      </div>
      {below.length > 0 && (
        <ul className="pins below">
          {below.map((pin, k) => (
            <ResultPin key={pin.name} block={block} pin={pin} at={(k + 1) / (below.length + 1)} />
          ))}
        </ul>
      )}
    </div>
  );
});

function watching(block: string, pin: string, of: Pin): (event: React.MouseEvent) => void {
  return (event) => {
    event.stopPropagation();
    openPanel("watch", block, of.interface === "Status" ? "" : pin);
  };
}

function LeftPin({ block, pin, wired }: { block: Block; pin: Pin; wired: boolean }): React.JSX.Element {
  const problem = useStore((s) => problemsOf(s.checks).get(resultKey(block.id, pin.name)));
  const colour = pin.interface === "Scope" || pin.name === "scope" ? "scope" : pin.kind === "const" ? "const" : wired ? "input wired" : "input";
  const tensor = pin.kind === "const" && pin.interface.includes("Initializer");
  return (
    <li
      className={`pin ${colour} ${problem ? "bad" : ""}`}
      data-pin={pin.name}
      title={problem?.message}
      onDoubleClick={tensor ? watching(block.id, pin.name, pin) : undefined}
    >
      <Handle id={pin.name} type="target" position={Position.Left} className={`dot ${colour}`} />
      <span className="pin-name">{label(pin)}</span>
      {pin.kind === "const" && <span className="pin-value">{preview(pin)}</span>}
    </li>
  );
}

function ResultPin({ block, pin, at }: { block: Block; pin: Pin; at: number }): React.JSX.Element {
  const result = useStore((s) => s.results.get(resultKey(block.id, pin.name)));
  return (
    <li className={`pin result ${result ? "filled" : ""}`} data-pin={pin.name} onDoubleClick={watching(block.id, pin.name, pin)}>
      <Handle id={pin.name} type="source" position={Position.Bottom} className="dot result" style={{ left: `${100 * at}%` }} />
      <span className="pin-name">
        {pin.name}
        {result ? formatShape(result.shape) : ""}
      </span>
    </li>
  );
}

function Badges({ block }: { block: Block }): React.JSX.Element | null {
  const state = useStore((s) => s.states.get(block.id));
  const stale = useStore((s) => s.stale.has(block.id));
  const running = useStore((s) => s.run?.state === "running" && s.run.current === block.id);
  const problem = useStore((s) => problemsOf(s.checks).get(block.id));
  const badge = badgeOf(state, running, stale, problem);
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
