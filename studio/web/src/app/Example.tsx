// What is wrong with the documented example, and its twin one click away.
import { useState } from "react";
import { openAs } from "../state/sync";
import { useStore } from "../state/store";
import { Icon } from "./icons";

export function Example(): React.JSX.Element | null {
  const explanation = useStore((s) => s.explanation);
  const doc = useStore((s) => s.doc);
  const [hidden, setHidden] = useState<string | null>(null);
  if (!explanation || hidden === doc) return null;
  const other = explanation.twin;
  return (
    <section className="example" aria-label="about this example">
      <header>
        <Icon name="bulb" />
        <h2>{explanation.title}</h2>
        <button type="button" className="primary" onClick={() => void openAs("example", { which: other })}>
          {other === "corrected" ? "Open the corrected twin" : "Open the page as documented"}
        </button>
        <button type="button" className="tool" aria-label="hide the explanation" onClick={() => setHidden(doc)}>
          <Icon name="close" />
        </button>
      </header>
      <div className="paragraphs">
        {explanation.paragraphs.map((text) => (
          <p key={text}>{text}</p>
        ))}
      </div>
    </section>
  );
}
