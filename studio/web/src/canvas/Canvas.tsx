// The page: React Flow with our blocks, wires and rules. It draws what the store holds and turns gestures into edits.
import type { Connection, Edge, IsValidConnection, NodeChange, OnConnectEnd } from "@xyflow/react";
import { Background, BackgroundVariant, ConnectionMode, ReactFlow, SelectionMode, useReactFlow } from "@xyflow/react";
import { useCallback, useEffect, useRef } from "react";
import type { Ends } from "../model/page";
import { refusal } from "../model/rules";
import { connect, dropDragged, place } from "../state/edit";
import { onEdgesChange, onNodesChange, select } from "../state/flow";
import { openPanel } from "../state/panels";
import type { BlockNode as Node } from "../state/store";
import { get, toast, useStore } from "../state/store";
import { BlockNode } from "./BlockNode";
import { carry, letGo } from "./drag";
import { pinAt, whyNot } from "./ends";
import { Refusal, Wire, WireInHand } from "./Wire";
import { Zoom } from "./Zoom";

const NODE_TYPES = { block: BlockNode };
const EDGE_TYPES = { wire: Wire };
export const DRAGGED = "application/x-poolgrad-block";

function endsOfConnection(c: Connection | Edge): Ends {
  return { source: c.source, source_pin: c.sourceHandle ?? "", target: c.target, target_pin: c.targetHandle ?? "" };
}

const isValid: IsValidConnection = (c) => refusal(get().library, get().page, endsOfConnection(c)) === null;

/** A wire let go over a pin that refuses it: the reason stays for a while. */
const onConnectEnd: OnConnectEnd = (event, { isValid: drawn, fromHandle, toHandle }) => {
  if (drawn || !fromHandle) return;
  const { clientX, clientY } = "changedTouches" in event ? (event.changedTouches[0] ?? { clientX: 0, clientY: 0 }) : event;
  const to = toHandle ? { block: toHandle.nodeId, pin: toHandle.id ?? "" } : pinAt(clientX, clientY);
  const why = whyNot(fromHandle, to);
  if (why) toast(`no wire: ${why}`, "error");
};

/** A block that was let go after a drag, or moved by an arrow key, is an edit; on the way it is only drawn. */
function onChanges(changes: NodeChange<Node>[]): void {
  const places = changes.filter((change) => change.type === "position");
  if (places.length === changes.length && places.every((change) => change.dragging)) {
    carry(places);
    return;
  }
  letGo(() => {
    onNodesChange(changes);
    if (places.some((change) => !change.dragging)) dropDragged();
  });
}

/** Whether blocks hide each other: those of pages from enuSpace may, as its blocks are smaller. */
function crowded(nodes: readonly Node[]): boolean {
  const boxes = nodes.map(({ position: { x, y }, measured }) => ({ x, y, right: x + (measured?.width ?? 0), bottom: y + (measured?.height ?? 0) }));
  return boxes.some((a, k) => boxes.slice(k + 1).some((b) => a.x < b.right && b.x < a.right && a.y < b.bottom && b.y < a.bottom));
}

export function Canvas(): React.JSX.Element {
  const nodes = useStore((s) => s.nodes);
  const edges = useStore((s) => s.edges);
  const doc = useStore((s) => s.doc);
  const focus = useStore((s) => s.focus);
  const flow = useReactFlow<Node>();
  const box = useRef<HTMLDivElement>(null);

  useEffect(() => {
    // An empty page has nothing to fit, and React Flow would keep the wish until the first block comes.
    const fitted = (): void => box.current?.setAttribute("data-fitted", doc ?? "");
    if (!doc || get().page.blocks.length === 0) {
      fitted();
      return;
    }
    const timer = setTimeout(() => {
      if (crowded(flow.getNodes())) toast("blocks lie over each other: press L to lay them out in columns");
      void flow.fitView({ padding: 0.15, maxZoom: 1 }).then(fitted);
    }, 60);
    return () => clearTimeout(timer);
  }, [doc, flow]);

  useEffect(() => {
    if (!focus || !flow.getNode(focus.block)) return;
    select(new Set([focus.block]));
    void flow.fitView({ nodes: [{ id: focus.block }], maxZoom: flow.getZoom(), minZoom: Math.min(1, flow.getZoom()), duration: 200 });
  }, [focus, flow]);

  const onDrop = useCallback(
    (event: React.DragEvent) => {
      const symbol = event.dataTransfer.getData(DRAGGED);
      if (!symbol) return;
      event.preventDefault();
      const at = flow.screenToFlowPosition({ x: event.clientX, y: event.clientY });
      place(symbol, { x: at.x - 40, y: at.y - 14 });
    },
    [flow],
  );

  // Under the hand that drags a block the browser need not look for what lies below among thousands of pins.
  const shield = (on: boolean) => () => box.current?.classList.toggle("dragging", on);

  return (
    <div className="canvas" ref={box} onDrop={onDrop} onDragOver={(event) => event.preventDefault()} role="region" aria-label="page">
      <ReactFlow
        nodes={nodes}
        edges={edges}
        nodeTypes={NODE_TYPES}
        edgeTypes={EDGE_TYPES}
        onNodesChange={onChanges}
        onEdgesChange={onEdgesChange}
        onConnect={(c) => connect(endsOfConnection(c))}
        onConnectEnd={onConnectEnd}
        isValidConnection={isValid}
        onNodeDragStart={shield(true)}
        onNodeDragStop={shield(false)}
        onNodeDoubleClick={(_, node) => openPanel("watch", node.id)}
        connectionMode={ConnectionMode.Loose}
        connectionLineComponent={WireInHand}
        connectionRadius={10}
        selectionMode={SelectionMode.Partial}
        deleteKeyCode={null}
        minZoom={0.1}
        maxZoom={3}
        zoomOnDoubleClick={false}
        nodeDragThreshold={2}
      >
        <Background variant={BackgroundVariant.Dots} gap={24} size={1.2} />
        <Zoom />
        <Refusal />
      </ReactFlow>
      <div className="shield" />
    </div>
  );
}
