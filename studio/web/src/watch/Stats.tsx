import { bytes } from "../canvas/looks";
import type { Statistics } from "../net/types";
import { short } from "./index";
import { useAnswer } from "./useAnswer";

interface Props {
  readonly target: { readonly doc: string | null; readonly block: string; readonly pin: string };
  readonly version: string;
}

export function Stats({ target, version }: Props): React.JSX.Element {
  const { value: s, why } = useAnswer<Statistics>("statistics", target, version);
  if (why) return <p className="error">{why}</p>;
  if (!s) return <p className="nothing">…</p>;
  const lines: [string, string][] = [
    ["type", s.dtype],
    ["shape", s.shape.map((n) => `[${n}]`).join("") || "scalar"],
    ["elements", `${s.size.toLocaleString("en")}, ${bytes(s.bytes)}`],
    ["least", short(s.min, 9)],
    ["greatest", short(s.max, 9)],
    ["mean", short(s.mean, 9)],
    ["standard deviation", short(s.std, 9)],
    ["sum", short(s.sum, 9)],
    ["zeros", s.zeros.toLocaleString("en")],
    ["not a number", s.nan.toLocaleString("en")],
    ["infinite", s.infinite.toLocaleString("en")],
  ];
  return (
    <div className="stats">
      <dl>
        {lines.map(([name, text]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{text}</dd>
          </div>
        ))}
      </dl>
      {s.histogram && <Histogram {...s.histogram} />}
    </div>
  );
}

function Histogram({ counts, edges }: { counts: number[]; edges: number[] }): React.JSX.Element {
  const most = Math.max(1, ...counts);
  return (
    <figure>
      <div className="bars" role="img" aria-label={`histogram of ${counts.length} bins from ${short(edges[0])} to ${short(edges.at(-1))}`}>
        {counts.map((count, k) => (
          <div
            key={k}
            style={{ height: `${(100 * count) / most}%` }}
            title={`${short(edges[k], 4)} … ${short(edges[k + 1], 4)}: ${count}`}
          />
        ))}
      </div>
      <figcaption>
        <span>{short(edges[0], 4)}</span>
        <span>{short(edges.at(-1), 4)}</span>
      </figcaption>
    </figure>
  );
}
