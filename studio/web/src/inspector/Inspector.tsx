// Everything about the chosen block: its name, its properties, what is wired to it, what it gave. All of it by keyboard.
import { useEffect, useId, useState } from "react";
import { focusField } from "../app/focus";
import { Icon } from "../app/icons";
import { duration } from "../canvas/looks";
import { blockDef } from "../model/blocks";
import type { BlockDef } from "../model/blocks";
import { formatShape } from "../model/grammar";
import type { Block } from "../model/page";
import { removeWire, renameBlock } from "../state/edit";
import { openDialog, openPanel } from "../state/panels";
import { resultKey, useStore } from "../state/store";
import { defOf, Field } from "./Field";
import { TensorField } from "./TensorField";

export function Inspector(): React.JSX.Element {
  const chosen = useStore((s) => {
    const selected = s.nodes.filter((node) => node.selected);
    return selected.length === 1 ? (selected[0]?.data.block ?? null) : selected.length;
  });
  return (
    <aside className="inspector" aria-label="properties">
      {chosen === null || typeof chosen === "number" ? <Hint count={chosen ?? 0} /> : <BlockCard key={chosen.id} block={chosen} />}
    </aside>
  );
}

function Hint({ count }: { count: number }): React.JSX.Element {
  return (
    <div className="hint">
      <h2>{count > 1 ? `${count} blocks chosen` : "Properties"}</h2>
      <p>
        {count > 1
          ? "Copy, move or delete them together; choose one to see its properties."
          : "Choose a block to see and type its properties. Double-click a block or a pin to watch its values."}
      </p>
    </div>
  );
}

function BlockCard({ block }: { block: Block }): React.JSX.Element {
  const definition = useStore((s) => blockDef(s.library, block.symbol));
  const state = useStore((s) => s.states.get(block.id));
  const stale = useStore((s) => s.stale.has(block.id));
  const focus = useStore((s) => s.focus);
  useEffect(() => {
    if (focus?.block === block.id && focus.pin) focusField(block.id, focus.pin);
  }, [focus, block.id]);
  return (
    <>
      <h2 className="inspector-title">
        {block.symbol || "(no name)"}
      </h2>
      <p className="summary">{definition?.summary ?? "This block is kept as it is and cannot run here."}</p>
      {definition?.help && (
        <details className="block-help">
          <summary>Help</summary>
          {definition.help.split("\n\n").map((text) => (
            <p key={text}>{text}</p>
          ))}
        </details>
      )}
      <Name block={block} />
      {state?.error && (
        <p className="block-error" role="alert">
          {state.error}
        </p>
      )}
      {definition && <Properties block={block} definition={definition} />}
      <Wires block={block} />
      <Results block={block} stale={stale} seconds={state?.state === "done" ? state.seconds : null} />
    </>
  );
}

function Name({ block }: { block: Block }): React.JSX.Element {
  const id = useId();
  const [text, setText] = useState(block.id);
  const [why, setWhy] = useState<string | null>(null);
  const commit = (): void => setWhy(renameBlock(block.id, text.trim()));
  return (
    <div className={`field ${why ? "bad" : ""}`}>
      <label htmlFor={id}>id</label>
      <input
        id={id}
        type="text"
        value={text}
        spellCheck={false}
        autoComplete="off"
        aria-invalid={why !== null}
        onChange={(event) => setText(event.target.value)}
        onBlur={commit}
        onKeyDown={(event) => {
          if (event.key === "Enter") commit();
          if (event.key === "Escape") setText(block.id);
        }}
      />
      {why && (
        <div className="said">
          <p className="error">{why}</p>
        </div>
      )}
    </div>
  );
}

function Properties({ block, definition }: { block: Block; definition: BlockDef }): React.JSX.Element {
  return (
    <section aria-label="properties of the block">
      {block.pins.map((pin) => {
        const def = defOf(definition, pin.name);
        if (!def || def.kind !== "const") return null;
        return def.form === "values" ? (
          <TensorField key={pin.name} block={block} pin={pin} />
        ) : (
          <Field key={pin.name} block={block} pin={pin} def={def} />
        );
      })}
    </section>
  );
}

function Wires({ block }: { block: Block }): React.JSX.Element | null {
  const wires = useStore((s) => s.page.wires);
  const lists = useStore((s) => s.library.lists);
  const inputs = block.pins.filter((pin) => pin.kind === "input" && pin.interface !== "Scope");
  const outputs = block.pins.filter((pin) => pin.kind === "output" && pin.interface !== "Status");
  if (inputs.length + outputs.length === 0) return null;
  return (
    <section aria-label="wires">
      <h3>Wires</h3>
      {inputs.map((pin) => (
        <div className="wire-row" key={pin.name}>
          <span className="wire-pin">{pin.name}</span>
          {wires
            .filter((wire) => wire.target === block.id && wire.target_pin === pin.name)
            .map((wire) => (
              <span className="wire-end" key={`${wire.source}.${wire.source_pin}`}>
                ← {wire.source}.{wire.source_pin}
                <button type="button" onClick={() => removeWire(wire)} aria-label={`remove the wire from ${wire.source}.${wire.source_pin}`}>
                  <Icon name="close" />
                </button>
              </span>
            ))}
          {(lists.includes(pin.interface) || !wires.some((wire) => wire.target === block.id && wire.target_pin === pin.name)) && (
            <button type="button" className="connect" onClick={() => openDialog({ kind: "wire", block: block.id, pin: pin.name })}>
              wire…
            </button>
          )}
        </div>
      ))}
      {outputs.map((pin) => (
        <div className="wire-row" key={pin.name}>
          <span className="wire-pin">{pin.name} →</span>
          <button type="button" className="connect" onClick={() => openDialog({ kind: "wire", block: block.id, pin: pin.name })}>
            wire…
          </button>
        </div>
      ))}
    </section>
  );
}

function Results({ block, stale, seconds }: { block: Block; stale: boolean; seconds: number | null }): React.JSX.Element | null {
  const results = useStore((s) => s.results);
  const pools = /Pool/.test(block.symbol);
  const shown = block.pins.filter((pin) => pin.kind === "result" && results.has(resultKey(block.id, pin.name)));
  if (shown.length === 0 && !pools) return null;
  return (
    <section aria-label="results">
      <h3>
        Results {stale ? <em className="stale-word">stale: run again</em> : seconds !== null && <em>{duration(seconds)}</em>}
      </h3>
      {shown.map((pin) => {
        const result = results.get(resultKey(block.id, pin.name));
        return (
          <button type="button" className="result-row" key={pin.name} onClick={() => openPanel("watch", block.id, pin.name)}>
            <Icon name="table" />
            {pin.name}
            {formatShape(result?.shape ?? [])} <em>{result?.type}</em>
          </button>
        );
      })}
      {pools && (
        <button type="button" className="result-row" onClick={() => openPanel("windows", block.id)}>
          <Icon name="windows" />
          See the windows
        </button>
      )}
    </section>
  );
}
