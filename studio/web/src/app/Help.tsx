import { Dialog } from "./Dialog";
import { SHORTCUTS } from "./shortcuts";

const COLOURS = [
  ["scope", "scope, never wired"],
  ["input", "input"],
  ["const", "property"],
  ["output", "output"],
  ["result", "result"],
] as const;

export function Help(): React.JSX.Element {
  const groups = [...new Set(SHORTCUTS.map((s) => s.group))];
  return (
    <Dialog title="Keys and help" wide>
      <div className="help">
        {groups.map((group) => (
          <section key={group}>
            <h3>{group}</h3>
            <dl>
              {SHORTCUTS.filter((s) => s.group === group).map((s) => (
                <div key={s.keys}>
                  <dt>
                    <kbd>{s.keys}</kbd>
                  </dt>
                  <dd>{s.what}</dd>
                </div>
              ))}
            </dl>
          </section>
        ))}
        <section className="by-mouse">
          <h3>By mouse</h3>
          <p>
            Drag a block from the palette. Draw a wire from a green output pin to a yellow input pin; where it may not end, the reason
            stands beside the pointer. Double-click a block or a pin to watch its values. Drag on the empty page to move it, with Shift to
            choose several blocks; turn the wheel to zoom.
          </p>
          <h3>The colours of pins</h3>
          <p className="legend">
            {COLOURS.map(([kind, what]) => (
              <span key={kind}>
                <i className={`swatch ${kind}`} /> {what}
              </span>
            ))}
          </p>
        </section>
      </div>
    </Dialog>
  );
}
