// Wiring by keyboard: every pin that the chosen one could meet, legal ones first, the others with the reason against.
import { useMemo, useRef, useState } from "react";
import type { Block, Ends, Pin } from "../model/page";
import { refusal } from "../model/rules";
import { connect } from "../state/edit";
import { openDialog } from "../state/panels";
import { useStore } from "../state/store";
import { Dialog } from "./Dialog";

interface Choice {
  readonly ends: Ends;
  readonly text: string;
  readonly why: string | null;
}

const wirable = (pin: Pin): boolean => (pin.kind === "input" || pin.kind === "output") && !["Scope", "Status"].includes(pin.interface);

export function WireDialog({ block: id, pin: first }: { block: string; pin: string }): React.JSX.Element | null {
  const library = useStore((s) => s.library);
  const page = useStore((s) => s.page);
  const [name, setName] = useState(first);
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const list = useRef<HTMLUListElement>(null);
  const block = page.blocks.find((b) => b.id === id);
  const pin = block?.pins.find((p) => p.name === name);
  const choices = useMemo(
    () => (block && pin ? choicesFor(page.blocks, block, pin).map((c) => ({ ...c, why: refusal(library, page, c.ends) })) : []),
    [block, pin, page, library],
  );
  if (!block || !pin) return null;
  const found = choices
    .filter((c) => c.text.toLowerCase().includes(text.toLowerCase()))
    .sort((a, b) => Number(a.why !== null) - Number(b.why !== null));
  const chosen = Math.min(at, found.length - 1);

  function take(choice: Choice | undefined): void {
    if (choice && choice.why === null && connect(choice.ends) === null) openDialog(null);
  }

  function onKeyDown(event: React.KeyboardEvent): void {
    const move = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (move) {
      event.preventDefault();
      const next = Math.max(0, Math.min(found.length - 1, chosen + move));
      setAt(next);
      list.current?.children[next]?.scrollIntoView({ block: "nearest" });
    } else if (event.key === "Enter") {
      event.preventDefault();
      take(found[chosen]);
    }
  }

  return (
    <Dialog title={`Wire ${pin.kind === "output" ? "from" : "to"} ${id}.${name}`}>
      <div className="pin-tabs" role="tablist" aria-label="pin">
        {block.pins.filter(wirable).map((p) => (
          <button
            type="button"
            role="tab"
            key={p.name}
            aria-selected={p.name === name}
            onClick={() => {
              setName(p.name);
              setAt(0);
            }}
          >
            {p.name}
          </button>
        ))}
      </div>
      <input
        data-first
        type="search"
        aria-label="find a pin"
        placeholder="Find a pin; arrows choose, Enter draws the wire"
        value={text}
        onChange={(event) => {
          setText(event.target.value);
          setAt(0);
        }}
        onKeyDown={onKeyDown}
      />
      <ul className="choices" role="listbox" aria-label="pins" ref={list}>
        {found.map((choice, k) => (
          <li
            key={choice.text}
            role="option"
            aria-selected={k === chosen}
            aria-disabled={choice.why !== null}
            className={`${k === chosen ? "active" : ""} ${choice.why ? "refused" : ""}`}
            onClick={() => take(choice)}
          >
            <span>{choice.text}</span>
            {choice.why && <em>{choice.why}</em>}
          </li>
        ))}
      </ul>
      {found.length === 0 && <p className="nothing">No other block has such a pin.</p>}
    </Dialog>
  );
}

function choicesFor(blocks: readonly Block[], block: Block, pin: Pin): Omit<Choice, "why">[] {
  const forwards = pin.kind === "output";
  return blocks.flatMap((other) =>
    other.pins
      .filter((p) => other !== block && wirable(p) && (p.kind === "output") !== forwards)
      .map((p) => ({
        text: `${other.id}.${p.name}`,
        ends: forwards
          ? { source: block.id, source_pin: pin.name, target: other.id, target_pin: p.name }
          : { source: other.id, source_pin: p.name, target: block.id, target_pin: pin.name },
      })),
  );
}
