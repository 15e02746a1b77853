// Open and save: pages in the folder the server was started in, a page from elsewhere by upload, recovered work.
import { useEffect, useState } from "react";
import { Dialog } from "../app/Dialog";
import { Icon } from "../app/icons";
import { bytes } from "../canvas/looks";
import { RequestFailed } from "../net/socket";
import type { DocumentInfo, FileEntry } from "../net/types";
import { openDialog } from "../state/panels";
import { ask, openAs, request, said, settled } from "../state/sync";
import { get, set, toast, useStore } from "../state/store";
import { upload } from "./upload";

export function useFolder(): { path: string; entries: FileEntry[]; go: (path: string) => void } {
  const [at, setAt] = useState<{ path: string; entries: FileEntry[] }>({ path: "", entries: [] });
  const go = (path: string): void => {
    void ask<{ path: string; entries: FileEntry[] }>("files", { path }).then((answer) => answer && setAt(answer));
  };
  useEffect(() => go(""), []);
  return { ...at, go };
}

export function join(folder: string, name: string): string {
  return folder ? `${folder}/${name}` : name;
}

interface ListProps {
  readonly folder: ReturnType<typeof useFolder>;
  readonly kinds: readonly FileEntry["kind"][];
  readonly onFile: (path: string) => void;
}

export function FileList({ folder, kinds, onFile }: ListProps): React.JSX.Element {
  const name = useStore((s) => s.hello?.folder ?? "");
  const shown = folder.entries.filter((entry) => entry.kind === "folder" || kinds.includes(entry.kind));
  return (
    <div className="file-list">
      <p className="where">
        <Icon name="folder" /> {name}
        {folder.path && `/${folder.path}`}
        {folder.path && (
          <button type="button" onClick={() => folder.go(folder.path.split("/").slice(0, -1).join("/"))}>
            up
          </button>
        )}
      </p>
      <ul>
        {shown.map((entry) => (
          <li key={entry.name}>
            <button
              type="button"
              onClick={() => (entry.kind === "folder" ? folder.go(join(folder.path, entry.name)) : onFile(join(folder.path, entry.name)))}
            >
              <Icon name={entry.kind === "folder" ? "folder" : "file"} />
              <strong>{entry.name}</strong>
              {entry.kind !== "folder" && (
                <span>
                  {bytes(entry.size)}, {new Date(entry.modified * 1000).toLocaleString()}
                </span>
              )}
            </button>
          </li>
        ))}
        {shown.length === 0 && <li className="nothing">Nothing to open in this folder.</li>}
      </ul>
    </div>
  );
}

export function OpenDialog(): React.JSX.Element {
  const folder = useFolder();
  const [documents, setDocuments] = useState<DocumentInfo[]>([]);
  const doc = useStore((s) => s.doc);
  useEffect(() => {
    void ask<{ documents: DocumentInfo[] }>("documents").then((answer) => answer && setDocuments(answer.documents));
  }, []);
  const others = documents.filter((info) => info.doc !== doc && info.blocks > 0);
  const take = async (op: "open" | "attach", fields: object): Promise<void> => {
    if (await openAs(op, fields)) openDialog(null);
  };
  async function onUpload(file: File): Promise<void> {
    const made = await upload<{ doc: string }>(`kind=page&name=${encodeURIComponent(file.name)}`, file);
    if (made) await take("attach", { doc: made.doc });
  }
  return (
    <Dialog title="Open a page" wide>
      <FileList folder={folder} kinds={["page"]} onFile={(path) => void take("open", { path })} />
      <label className="upload">
        <Icon name="down" /> or choose a page from elsewhere
        <input type="file" accept=".svg,.json" onChange={(event) => event.target.files?.[0] && void onUpload(event.target.files[0])} />
      </label>
      {others.length > 0 && (
        <div className="file-list">
          <p className="where">Open or recovered</p>
          <ul>
            {others.map((info) => (
              <li key={info.doc}>
                <button type="button" onClick={() => void take("attach", { doc: info.doc })}>
                  <Icon name="file" />
                  <strong>{info.name}</strong>
                  <span>
                    {info.blocks === 1 ? "one block" : `${info.blocks} blocks`}, {info.file ?? "never saved to a file"}, {new Date(info.edited * 1000).toLocaleString()}
                  </span>
                </button>
              </li>
            ))}
          </ul>
        </div>
      )}
    </Dialog>
  );
}

const FORMS = [
  { form: "svg", ending: ".svg", what: "enuSpace's page" },
  { form: "export", ending: ".json", what: "enuSpace's export, without positions" },
  { form: "own", ending: ".json", what: "everything, in our own form" },
] as const;

type Form = (typeof FORMS)[number]["form"];

function suggested(): string {
  const { file, page } = get();
  return file ?? `${page.name.replace(/[^\w.-]+/g, "-") || "page"}.svg`;
}

export function SaveDialog(): React.JSX.Element {
  const [path, setPath] = useState(suggested);
  const [form, setForm] = useState<Form>(() => (suggested().endsWith(".json") ? "own" : "svg"));
  const [results, setResults] = useState(true);
  const [there, setThere] = useState<string | null>(null);

  function choose(next: Form): void {
    setForm(next);
    const ending = FORMS.find((f) => f.form === next)?.ending ?? "";
    setPath((old) => old.replace(/\.(svg|json)$/i, "") + ending);
  }

  async function save(overwrite: boolean): Promise<void> {
    await settled();
    try {
      const answer = await request<{ file: string }>("save", { doc: get().doc, path, form, results, overwrite });
      set({ file: answer.file, dirty: false });
      toast(`saved as ${answer.file}`);
      openDialog(null);
    } catch (error) {
      if (!(error instanceof RequestFailed)) throw error;
      if (error.failure.kind === "exists") setThere(said(error));
      else toast(said(error), "error");
    }
  }

  return (
    <Dialog title="Save the page">
      <form
        className="form"
        onSubmit={(event) => {
          event.preventDefault();
          void save(false);
        }}
      >
        <label>
          File
          <input
            data-first
            type="text"
            value={path}
            spellCheck={false}
            onChange={(event) => {
              setPath(event.target.value);
              setThere(null);
              if (/\.svg$/i.test(event.target.value)) setForm("svg");
              if (/\.json$/i.test(event.target.value) && form === "svg") setForm("own");
            }}
          />
        </label>
        <fieldset>
          <legend>Form</legend>
          {FORMS.map((f) => (
            <label key={f.form} className="choice">
              <input type="radio" name="form" checked={form === f.form} onChange={() => choose(f.form)} />
              <code>{f.ending}</code> {f.what}
            </label>
          ))}
        </fieldset>
        <label className="choice">
          <input type="checkbox" checked={results} onChange={(event) => setResults(event.target.checked)} />
          with the results of the last run
        </label>
        {there && (
          <p className="error" role="alert">
            {there}
          </p>
        )}
        <footer>
          <button type="button" onClick={() => openDialog(null)}>
            Cancel
          </button>
          {there ? (
            <button type="button" className="primary" onClick={() => void save(true)}>
              Write over it
            </button>
          ) : (
            <button type="submit" className="primary">
              Save
            </button>
          )}
        </footer>
      </form>
    </Dialog>
  );
}
