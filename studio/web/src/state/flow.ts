// The page as React Flow draws it. A block or wire that did not change keeps its object, so only what changed is drawn.
import type { EdgeChange, NodeChange } from "@xyflow/react";
import { applyEdgeChanges, applyNodeChanges } from "@xyflow/react";
import type { Page } from "../model/page";
import { moveBlocks, wireKey } from "../model/page";
import type { BlockNode, WireEdge } from "./store";
import { get, set } from "./store";

export function flowOf(page: Page, nodes: readonly BlockNode[], edges: readonly WireEdge[]): { nodes: BlockNode[]; edges: WireEdge[] } {
  const oldNodes = new Map(nodes.map((node) => [node.id, node]));
  const oldEdges = new Map(edges.map((edge) => [edge.id, edge]));
  return {
    nodes: page.blocks.map((block) => {
      const old = oldNodes.get(block.id);
      if (old?.data.block === block) return old;
      const position = { x: block.x, y: block.y };
      const label = `${block.symbol} block ${block.id}`;
      return old ? { ...old, position, data: { block } } : { id: block.id, type: "block", position, data: { block }, ariaLabel: label };
    }),
    edges: page.wires.map((wire) => {
      const id = wireKey(wire);
      const old = oldEdges.get(id);
      if (old?.data?.wire === wire) return old;
      const label = `wire from ${wire.source}.${wire.source_pin} to ${wire.target}.${wire.target_pin}`;
      const ends = { source: wire.source, sourceHandle: wire.source_pin, target: wire.target, targetHandle: wire.target_pin };
      return { ...old, id, type: "wire", ...ends, data: { wire }, ariaLabel: label };
    }),
  };
}

export function selectedIds(): Set<string> {
  return new Set(get().nodes.filter((node) => node.selected).map((node) => node.id));
}

export function select(ids: ReadonlySet<string>): void {
  set((state) => ({
    nodes: state.nodes.map((node) => (!!node.selected === ids.has(node.id) ? node : { ...node, selected: ids.has(node.id) })),
    edges: state.edges.map((edge) => (edge.selected ? { ...edge, selected: false } : edge)),
  }));
}

/** Changes that React Flow makes itself: selection, sizes, places while dragging. Removal is ours, for undo's sake. */
export function onNodesChange(changes: NodeChange<BlockNode>[]): void {
  const own = changes.filter((change) => change.type !== "remove");
  set((state) => ({ nodes: applyNodeChanges(own, state.nodes) }));
}

export function onEdgesChange(changes: EdgeChange<WireEdge>[]): void {
  const own = changes.filter((change) => change.type !== "remove");
  set((state) => ({ edges: applyEdgeChanges(own, state.edges) }));
}

/** The page with the places that blocks have on the canvas now. */
export function placed(): Page {
  const { page, nodes } = get();
  const places = new Map(nodes.map((n) => [n.id, { x: Math.round(n.position.x), y: Math.round(n.position.y) }]));
  return moveBlocks(page, places);
}
