// A window that floats over the page: moved by its title, sized by its corner, both also with the arrow keys.
import { useEffect, useRef } from "react";
import { changePanel, closePanel, raisePanel } from "../state/panels";
import type { Panel } from "../state/store";
import { Icon } from "./icons";

interface Props {
  readonly panel: Panel;
  readonly title: string;
  readonly children: React.ReactNode;
}

const ARROWS: Record<string, [number, number]> = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

export function PanelFrame({ panel, title, children }: Props): React.JSX.Element {
  const box = useRef<HTMLElement>(null);
  useEffect(() => box.current?.focus(), []);

  function follow(event: React.PointerEvent, change: (dx: number, dy: number) => void): void {
    if ((event.target as HTMLElement).closest("button")) return;
    event.preventDefault();
    const { clientX, clientY } = event;
    const move = (e: PointerEvent): void => change(e.clientX - clientX, e.clientY - clientY);
    const end = (): void => {
      removeEventListener("pointermove", move);
      removeEventListener("pointerup", end);
    };
    addEventListener("pointermove", move);
    addEventListener("pointerup", end);
  }

  // Its title stays in sight, wherever it is dragged and however small the page becomes.
  const room = box.current?.offsetParent;
  const within = (at: number, size = Infinity, title = 0): number => Math.max(0, Math.min(at, size - title));
  const moveBy = (dx: number, dy: number): void =>
    changePanel(panel.key, { x: within(panel.x + dx, room?.clientWidth, 120), y: within(panel.y + dy, room?.clientHeight, 36) });
  const sizeBy = (dx: number, dy: number): void =>
    changePanel(panel.key, { w: Math.max(280, panel.w + dx), h: Math.max(200, panel.h + dy) });
  const byKeys = (act: typeof moveBy) => (event: React.KeyboardEvent): void => {
    const step = ARROWS[event.key];
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    act(step[0] * 16, step[1] * 16);
  };

  return (
    <section
      ref={box}
      className={`panel ${panel.kind}`}
      style={{ left: `min(${panel.x}px, 100% - 120px)`, top: `min(${panel.y}px, 100% - 36px)`, width: panel.w, height: panel.h, zIndex: 10 + panel.z }}
      aria-label={title}
      tabIndex={-1}
      onPointerDown={() => raisePanel(panel.key)}
    >
      <header onPointerDown={(event) => follow(event, moveBy)} tabIndex={0} onKeyDown={byKeys(moveBy)} aria-label={`${title}; arrows move it`}>
        <h2>{title}</h2>
        <button type="button" className="tool" onClick={() => closePanel(panel.key)} aria-label={`close ${title}`} title="close (Q)">
          <Icon name="close" />
        </button>
      </header>
      <div className="panel-body">{children}</div>
      <div
        className="corner"
        role="separator"
        aria-label="size of the window; arrows change it"
        tabIndex={0}
        onPointerDown={(event) => follow(event, sizeBy)}
        onKeyDown={byKeys(sizeBy)}
      />
    </section>
  );
}
