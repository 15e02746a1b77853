// Wires as enuSpace draws them: brown right-angled lines with a round start and an arrow at the end; and the wire in the
// hand, which says why it may not end where it is held.
import type { ConnectionLineComponentProps, EdgeProps } from "@xyflow/react";
import { BaseEdge, getSmoothStepPath, Position, useConnection } from "@xyflow/react";
import { memo } from "react";
import type { BlockNode, WireEdge } from "../state/store";
import { useCarried } from "./drag";
import { pinAt, whyNot } from "./ends";

export const Wire = memo(function Wire(props: EdgeProps<WireEdge>): React.JSX.Element {
  const { id, source, target, selected } = props;
  const start = useCarried(source, target);
  const end = useCarried(target, source);
  const [sourceX, sourceY] = [props.sourceX + start.x, props.sourceY + start.y];
  const [targetX, targetY] = [props.targetX + end.x, props.targetY + end.y];
  const [path] = getSmoothStepPath({
    sourceX,
    sourceY,
    targetX: targetX - 4,
    targetY,
    sourcePosition: Position.Right,
    targetPosition: Position.Left,
    borderRadius: 0,
    offset: 12,
  });
  return (
    <g className={`wire ${selected ? "selected" : ""}`}>
      <BaseEdge id={id} path={path} interactionWidth={16} />
      <circle className="wire-start" cx={sourceX} cy={sourceY} r={3.5} />
      <path className="wire-end" d={`M${targetX - 12} ${targetY - 4.5} L${targetX - 4} ${targetY} L${targetX - 12} ${targetY + 4.5} Z`} />
    </g>
  );
});

export function WireInHand(props: ConnectionLineComponentProps<BlockNode>): React.JSX.Element {
  const { fromX, fromY, toX, toY, fromPosition } = props;
  const why = useWhy();
  const [path] = getSmoothStepPath({
    sourceX: fromX,
    sourceY: fromY,
    sourcePosition: fromPosition,
    targetX: toX,
    targetY: toY,
    targetPosition: fromPosition === Position.Right ? Position.Left : Position.Right,
    borderRadius: 0,
  });
  return (
    <g className={`wire in-hand ${why ? "refused" : ""}`}>
      <path className="react-flow__edge-path" d={path} />
      <circle cx={toX} cy={toY} r={4} />
    </g>
  );
}

/** Why the wire in the hand may not end at the pin under it; empty if it may, or if there is no pin. */
function useWhy(): string {
  return useConnection((c) => {
    if (!c.inProgress) return "";
    const { toHandle: handle, pointer } = c;
    const edge = document.querySelector(".react-flow")?.getBoundingClientRect();
    const under = handle
      ? { block: handle.nodeId, pin: handle.id ?? "" }
      : pinAt(pointer.x + (edge?.left ?? 0), pointer.y + (edge?.top ?? 0));
    return whyNot(c.fromHandle, under) ?? "";
  });
}

/** The reason beside the pointer, above everything, so that it never hides behind a block. */
export function Refusal(): React.JSX.Element | null {
  const why = useWhy();
  const at = useConnection((c) => (c.inProgress ? `${Math.round(c.pointer.x)},${Math.round(c.pointer.y)}` : ""));
  if (!why || !at) return null;
  const [x, y] = at.split(",").map(Number) as [number, number];
  return (
    <div className="refusal" role="status" style={{ left: x + 16, top: y + 14 }}>
      {why}
    </div>
  );
}
