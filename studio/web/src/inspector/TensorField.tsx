// A property that holds a tensor: its type, its shape and its values, checked together.
import { useId } from "react";
import { bytes } from "../canvas/looks";
import type { Block, Pin } from "../model/page";
import { endTyping, setPin } from "../state/edit";
import { openPanel } from "../state/panels";
import { Said, useVerdict } from "./Field";

const TYPES = ["double", "float", "int", "bool", "string"];

export function TensorField({ block, pin }: { block: Block; pin: Pin }): React.JSX.Element {
  const id = useId();
  const verdict = useVerdict(block, pin);
  const types = TYPES.includes(pin.type) ? TYPES : [...TYPES, pin.type];
  const shapeBad = /shape/.test(verdict.message) && !/for the shape/.test(verdict.message);
  return (
    <fieldset className={`field tensor ${verdict.ok ? "" : "bad"}`}>
      <legend>{pin.name}</legend>
      <div className="row">
        <label htmlFor={`${id}-type`}>type</label>
        <select
          id={`${id}-type`}
          data-field={`${block.id}.${pin.name}.type`}
          value={pin.type}
          disabled={pin.data !== null && !pin.data.text}
          onChange={(event) => setPin(block.id, pin.name, { type: event.target.value })}
        >
          {types.map((type) => (
            <option key={type}>{type}</option>
          ))}
        </select>
        <label htmlFor={`${id}-shape`}>shape</label>
        <input
          id={`${id}-shape`}
          data-field={`${block.id}.${pin.name}.shape`}
          type="text"
          value={pin.shape}
          placeholder="[2][3], empty: a scalar"
          aria-invalid={shapeBad}
          spellCheck={false}
          autoComplete="off"
          onChange={(event) => setPin(block.id, pin.name, { shape: event.target.value })}
          onBlur={endTyping}
        />
      </div>
      {pin.data ? (
        <p className="held">
          {bytes(pin.data.bytes)} of {pin.data.text ? "text" : "values"} are kept beside the page.{" "}
          <button type="button" onClick={() => openPanel("watch", block.id, pin.name)}>
            Watch them
          </button>{" "}
          <button type="button" onClick={() => setPin(block.id, pin.name, { data: null, value: "" })}>
            Type new values
          </button>
        </p>
      ) : (
        <textarea
          id={`${id}-values`}
          data-field={`${block.id}.${pin.name}`}
          aria-label={`values of ${pin.name}`}
          aria-invalid={!verdict.ok && !shapeBad}
          aria-describedby={`${id}-said`}
          rows={3}
          value={pin.value}
          placeholder="values, row by row: 1;2;3;4"
          spellCheck={false}
          onChange={(event) => setPin(block.id, pin.name, { value: event.target.value })}
          onBlur={endTyping}
        />
      )}
      <Said id={`${id}-said`} verdict={verdict} />
    </fieldset>
  );
}
