// Where the keyboard goes next.

let coming: ReturnType<typeof setTimeout> | undefined;

/** Gives the focus to a block once it is drawn, unless the keyboard was sent elsewhere by then. */
export function focusBlock(id: string): void {
  clearTimeout(coming);
  coming = setTimeout(() => document.querySelector<HTMLElement>(`.react-flow__node[data-id="${CSS.escape(id)}"]`)?.focus(), 50);
}

export function focusField(block: string, pin: string): void {
  clearTimeout(coming);
  const fields = document.querySelectorAll<HTMLElement>(".inspector [data-field]:not(:disabled)");
  const wanted = [...fields].find((field) => field.dataset.field === `${block}.${pin}`) ?? fields[0];
  wanted?.focus();
  wanted?.scrollIntoView({ block: "nearest" });
}

/** True while the user types text, so that single letters are no shortcuts. */
export function typing(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));
}
