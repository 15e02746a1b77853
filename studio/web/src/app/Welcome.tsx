// What an empty page offers: the example, a file, or work that was left open.
import { openDialog } from "../state/panels";
import { openAs } from "../state/sync";
import { set, useStore } from "../state/store";
import { Icon } from "./icons";

export function Welcome(): React.JSX.Element | null {
  const welcome = useStore((s) => s.welcome);
  const empty = useStore((s) => s.page.blocks.length === 0);
  const hello = useStore((s) => s.hello);
  const doc = useStore((s) => s.doc);
  if (!welcome || !empty || !hello) return null;
  const left = hello.documents.filter((info) => info.doc !== doc && info.blocks > 0).slice(0, 5);
  return (
    <section className="welcome" aria-label="welcome">
      <h1>Average pooling you can see, wire and run</h1>
      <div className="cards">
        <button type="button" onClick={() => void openAs("example", { which: "documented" })}>
          <strong>The documented AvgPool3DGrad page</strong>
          <span>as enuSpace shows it, with its mistake explained</span>
        </button>
        <button type="button" onClick={() => void openAs("example", { which: "corrected" })}>
          <strong>Its corrected twin</strong>
          <span>the same page with a gradient that fits</span>
        </button>
        <button type="button" onClick={() => openDialog({ kind: "files", mode: "open" })}>
          <strong>Open a page</strong>
          <span>.svg or .json from the folder {hello.folder}</span>
        </button>
        <button
          type="button"
          onClick={() => {
            set({ welcome: false });
            document.getElementById("palette-search")?.focus();
          }}
        >
          <strong>Begin with an empty page</strong>
          <span>drag blocks from the left, or press / and type</span>
        </button>
      </div>
      {left.length > 0 && (
        <>
          <h2>Open or recovered work</h2>
          <ul>
            {left.map((info) => (
              <li key={info.doc}>
                <button type="button" onClick={() => void openAs("attach", { doc: info.doc })}>
                  <Icon name="file" />
                  <strong>{info.name}</strong>
                  <span>
                    {info.blocks === 1 ? "one block" : `${info.blocks} blocks`}, {info.file ?? "never saved to a file"}
                    {info.dirty ? ", unsaved changes" : ""}, {new Date(info.edited * 1000).toLocaleString()}
                  </span>
                </button>
              </li>
            ))}
          </ul>
        </>
      )}
    </section>
  );
}
