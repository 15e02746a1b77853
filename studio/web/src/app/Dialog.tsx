// A dialog: the focus stays inside, Escape closes it, and the focus returns to where it was.
import { useEffect, useRef } from "react";
import { openDialog } from "../state/panels";
import { Icon } from "./icons";

interface Props {
  readonly title: string;
  readonly wide?: boolean;
  readonly children: React.ReactNode;
}

export function Dialog({ title, wide = false, children }: Props): React.JSX.Element {
  const box = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const before = document.activeElement;
    const dialog = box.current;
    dialog?.showModal();
    dialog?.querySelector<HTMLElement>("[data-first]")?.focus();
    return () => {
      dialog?.close();
      if (before instanceof HTMLElement) before.focus();
    };
  }, []);
  return (
    <dialog
      ref={box}
      className={wide ? "wide" : ""}
      aria-label={title}
      onCancel={(event) => {
        event.preventDefault();
        openDialog(null);
      }}
      onClick={(event) => {
        if (event.target === box.current) openDialog(null);
      }}
    >
      <div className="dialog-body">
        <header>
          <h2>{title}</h2>
          <button type="button" className="tool" onClick={() => openDialog(null)} aria-label="close">
            <Icon name="close" />
          </button>
        </header>
        {children}
      </div>
    </dialog>
  );
}
