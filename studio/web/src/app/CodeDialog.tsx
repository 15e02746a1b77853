// The page as code that computes the same: Python, and DirectML's JSON; made by the server, ready to copy.
import { useEffect, useState } from "react";
import { RequestFailed } from "../net/socket";
import type { Code } from "../net/types";
import { request, said, settled } from "../state/sync";
import { get, toast } from "../state/store";
import { Dialog } from "./Dialog";
import { Icon } from "./icons";

const KINDS = { python: "Python", directml: "DirectML JSON" } as const;

export function CodeDialog(): React.JSX.Element {
  const [kind, setKind] = useState<keyof typeof KINDS>("python");
  const [code, setCode] = useState<Code | null>(null);
  const [why, setWhy] = useState<string | null>(null);
  useEffect(() => {
    let live = true;
    setCode(null);
    setWhy(null);
    void settled()
      .then(() => request<Code>("code", { doc: get().doc, kind }))
      .then((answer) => live && setCode(answer))
      .catch((error: unknown) => {
        if (!(error instanceof RequestFailed)) throw error;
        if (live) setWhy(said(error));
      });
    return () => {
      live = false;
    };
  }, [kind]);
  async function copy(): Promise<void> {
    await navigator.clipboard.writeText(code?.text ?? "");
    toast("copied");
  }
  return (
    <Dialog title="As code" wide>
      <div className="code-bar">
        <div className="pin-tabs" role="tablist" aria-label="language">
          {(Object.keys(KINDS) as (keyof typeof KINDS)[]).map((name) => (
            <button type="button" role="tab" key={name} aria-selected={name === kind} onClick={() => setKind(name)}>
              {KINDS[name]}
            </button>
          ))}
        </div>
        <button type="button" className="primary" data-first disabled={!code} onClick={() => void copy()}>
          <Icon name="copy" /> Copy
        </button>
      </div>
      {why && (
        <p className="error" role="alert">
          {why}
        </p>
      )}
      {code?.notes.map((note) => (
        <p className="note" key={note}>
          {note}
        </p>
      ))}
      {code && (
        <pre className="code" tabIndex={0} aria-label={`the page as ${KINDS[kind]}`}>
          {code.text}
        </pre>
      )}
      {code && code.files.length > 0 && (
        <p className="note">
          It reads{" "}
          {code.files.map((file) => (
            <a key={file.name} href={file.url} download={file.name}>
              {file.name}
            </a>
          ))}
          ; keep them beside the program.
        </p>
      )}
    </Dialog>
  );
}
