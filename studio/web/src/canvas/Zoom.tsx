import { Panel, useReactFlow, useViewport } from "@xyflow/react";
import { Icon } from "../app/icons";

export function Zoom(): React.JSX.Element {
  const flow = useReactFlow();
  const { zoom } = useViewport();
  return (
    <Panel position="bottom-left" className="zoom">
      <button type="button" onClick={() => void flow.zoomOut({ duration: 100 })} aria-label="zoom out" title="zoom out (-)">
        <Icon name="minus" />
      </button>
      <output aria-label="zoom">{Math.round(zoom * 100)}%</output>
      <button type="button" onClick={() => void flow.zoomIn({ duration: 100 })} aria-label="zoom in" title="zoom in (+)">
        <Icon name="plus" />
      </button>
      <button type="button" onClick={() => void flow.fitView({ padding: 0.15, duration: 150 })} aria-label="fit the page" title="fit the page (F)">
        <Icon name="fit" />
      </button>
    </Panel>
  );
}
