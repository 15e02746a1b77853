// The palette: search, then drag a block onto the page, or choose it with the arrow keys and Enter.
import { useMemo, useRef, useState } from "react";
import { DRAGGED } from "../canvas/Canvas";
import { focusBlock } from "../app/focus";
import { place } from "../state/edit";
import { openDialog } from "../state/panels";
import { useStore } from "../state/store";
import type { Item } from "./search";
import { itemsOf, search } from "./search";

export function Palette(): React.JSX.Element {
  const hello = useStore((s) => s.hello);
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const list = useRef<HTMLDivElement>(null);
  const items = useMemo(() => itemsOf(hello?.catalogue ?? [], hello?.inputs ?? []), [hello]);
  const found = useMemo(() => search(items, text), [items, text]);
  const groups = useMemo(() => [...new Set(found.map((item) => item.group))], [found]);
  const chosen = Math.min(at, found.length - 1);

  function onKeyDown(event: React.KeyboardEvent): void {
    const move = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (move) {
      event.preventDefault();
      const next = Math.max(0, Math.min(found.length - 1, chosen + move));
      setAt(next);
      list.current?.querySelectorAll(".palette-item")[next]?.scrollIntoView({ block: "nearest" });
    } else if (event.key === "Enter" && found[chosen]) {
      event.preventDefault();
      choose(found[chosen]);
      setText("");
    } else if (event.key === "Escape") {
      setText("");
      (event.target as HTMLElement).blur();
    }
  }

  return (
    <aside className="palette" aria-label="blocks">
      <input
        id="palette-search"
        type="search"
        placeholder="Find a block   ( / )"
        aria-label="find a block"
        role="combobox"
        aria-expanded="true"
        aria-controls="palette-list"
        aria-activedescendant={found[chosen] ? `palette-${found[chosen].key}` : undefined}
        value={text}
        autoComplete="off"
        spellCheck={false}
        onChange={(event) => {
          setText(event.target.value);
          setAt(0);
        }}
        onKeyDown={onKeyDown}
      />
      <div className="palette-list" id="palette-list" role="listbox" aria-label="blocks found" ref={list}>
        {found.length === 0 && <p className="nothing">No block is called “{text}”.</p>}
        {(text ? [""] : groups).map((group) => (
          <div key={group} role="group" aria-label={group || "found"}>
            {group && <h2>{group}</h2>}
            {found
              .filter((item) => !group || item.group === group)
              .map((item) => (
                <PaletteItem key={item.key} item={item} active={found[chosen] === item} />
              ))}
          </div>
        ))}
      </div>
    </aside>
  );
}

function choose(item: Item): void {
  if (item.input) {
    openDialog({ kind: "input", source: item.input });
    return;
  }
  const id = place(item.key);
  if (id) focusBlock(id);
}

function PaletteItem({ item, active }: { item: Item; active: boolean }): React.JSX.Element {
  return (
    <div
      id={`palette-${item.key}`}
      className={`palette-item ${active ? "active" : ""}`}
      role="option"
      aria-selected={active}
      draggable={!item.input}
      data-symbol={item.key}
      title={item.summary}
      onDragStart={(event) => {
        event.dataTransfer.setData(DRAGGED, item.key);
        event.dataTransfer.effectAllowed = "copy";
      }}
      onClick={() => choose(item)}
    >
      <span className="palette-title">
        {item.title}
        {item.extension && !item.input && <abbr title="ours; enuSpace has no such block">+</abbr>}
      </span>
      <span className="palette-summary">{item.summary}</span>
    </div>
  );
}
