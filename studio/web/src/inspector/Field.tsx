// One property: its text, judged while it is typed. The browser judges at once; the server judges the page as a whole, and
// where both speak about the same text the server is right.
import { useId } from "react";
import type { Verdict } from "../model/check";
import { checkProperty } from "../model/check";
import type { BlockDef, PinDef } from "../model/blocks";
import type { Block, Pin } from "../model/page";
import { pinOf } from "../model/page";
import { endTyping, setPin } from "../state/edit";
import { problemsOf } from "../state/derived";
import { resultKey, useStore } from "../state/store";

interface Props {
  readonly block: Block;
  readonly pin: Pin;
  readonly def: PinDef;
}

export function useVerdict(block: Block, pin: Pin): Verdict {
  const library = useStore((s) => s.library);
  const server = useStore((s) => (s.kept === "kept" ? problemsOf(s.checks).get(resultKey(block.id, pin.name)) : undefined));
  if (pin.data) return server ? { ok: false, message: server.message, legal: "", warnings: [] } : GOOD;
  const dtype = pinOf(block, "dtype")?.value;
  const own = checkProperty(library, block.symbol, pin.name, pin.value, {
    type: pin.type,
    shape: pin.shape,
    ...(dtype === undefined ? {} : { dtype }),
  });
  return own.ok && server ? { ok: false, message: server.message, legal: "", warnings: [] } : own;
}

const GOOD: Verdict = { ok: true, message: "", legal: "", warnings: [] };

export function Field({ block, pin, def }: Props): React.JSX.Element {
  const id = useId();
  const verdict = useVerdict(block, pin);
  const field = `${block.id}.${pin.name}`;
  const common = {
    id,
    "data-field": field,
    "aria-invalid": !verdict.ok,
    "aria-describedby": `${id}-said`,
    onBlur: endTyping,
  } as const;
  const type = (value: string): void => setPin(block.id, pin.name, { value });
  return (
    <div className={`field ${verdict.ok ? "" : "bad"}`}>
      <label htmlFor={id}>{pin.name}</label>
      {def.form === "bool" ? (
        <select {...common} value={pin.value || "FALSE"} onChange={(event) => type(event.target.value)}>
          {[...new Set(["FALSE", "TRUE", pin.value || "FALSE"])].map((text) => (
            <option key={text}>{text}</option>
          ))}
        </select>
      ) : (
        <input
          {...common}
          type="text"
          value={pin.value}
          placeholder={def.hint ?? ""}
          list={def.form === "padding" || def.form === "dtype" || def.form === "attrs" ? `${id}-list` : undefined}
          spellCheck={false}
          autoComplete="off"
          onChange={(event) => type(event.target.value)}
        />
      )}
      <Choices id={`${id}-list`} def={def} />
      <Said id={`${id}-said`} verdict={verdict} onUse={(text) => setPin(block.id, pin.name, { value: text })} />
    </div>
  );
}

function Choices({ id, def }: { id: string; def: PinDef }): React.JSX.Element | null {
  const dtypes = ["DT_DOUBLE", "DT_FLOAT", "DT_INT32", "DT_INT64", "DT_BOOL", "DT_STRING", "DT_HALF", "DT_BFLOAT16"];
  const texts =
    def.form === "dtype" ? dtypes : def.form === "attrs" ? def.choices.map((c) => `${def.keys[0] ?? ""} = ${c};`) : [...def.choices];
  if (texts.length === 0) return null;
  return (
    <datalist id={id}>
      {texts.map((text) => (
        <option key={text} value={text} />
      ))}
    </datalist>
  );
}

/** What is wrong, the legal form, and where the legal forms are few, a button for each. */
export function Said({ id, verdict, onUse }: { id: string; verdict: Verdict; onUse?: (text: string) => void }): React.JSX.Element {
  const choices = onUse && verdict.legal.length < 90 && / or /.test(verdict.legal) ? verdict.legal.split(" or ") : [];
  return (
    <div className="said" id={id} aria-live="polite">
      {!verdict.ok && (
        <p className="error">
          {verdict.message}
          {verdict.legal && choices.length === 0 && <span className="legal">write {verdict.legal}</span>}
          {choices.length > 0 && (
            <span className="legal">
              write{" "}
              {choices.map((text) => (
                <button type="button" key={text} onClick={() => onUse?.(text)}>
                  {text}
                </button>
              ))}
            </span>
          )}
        </p>
      )}
      {verdict.warnings.map((text) => (
        <p className="warning" key={text}>
          {text}
        </p>
      ))}
    </div>
  );
}

export function defOf(definition: BlockDef | undefined, pin: string): PinDef | undefined {
  return definition?.pins.find((p) => p.name === pin);
}
