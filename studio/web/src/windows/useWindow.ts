// The window of the cell under the pointer. One question is under way at a time and only the latest place is asked next;
// answers are kept, so that going back over the grid shows them at once.
import { useEffect, useRef, useState } from "react";
import type { CellWindow, InputWindow } from "../net/types";
import { request } from "../state/sync";

export type Pointed = { readonly side: "cells" | "inputs"; readonly at: readonly number[] } | null;
export type Shown =
  | { readonly side: "cells"; readonly window: CellWindow }
  | { readonly side: "inputs"; readonly window: InputWindow }
  | null;

interface Asked {
  readonly key: string;
  readonly ask: () => Promise<Shown>;
}

export function useWindow(doc: string | null, block: string, pointed: Pointed, version: string): Shown {
  const [shown, setShown] = useState<{ key: string; answer: Shown } | null>(null);
  const kept = useRef(new Map<string, Shown>());
  const latest = useRef<Asked | null>(null);
  const busy = useRef(false);
  const key = pointed ? `${version}\n${pointed.side} ${pointed.at.join()}` : "";

  useEffect(() => {
    latest.current = pointed ? { key, ask: () => question(doc, block, pointed) } : null;
    if (!busy.current) void follow();

    async function follow(): Promise<void> {
      busy.current = true;
      for (let asked = latest.current; asked; ) {
        const answer = kept.current.get(asked.key) ?? (await asked.ask().catch(() => null));
        kept.current.set(asked.key, answer);
        setShown({ key: asked.key, answer });
        const next: Asked | null = latest.current;
        asked = next === asked ? null : next;
      }
      busy.current = false;
    }
  }, [doc, block, pointed, key]);

  // Until the answer for a new place arrives, the last one stays: less flicker than nothing.
  return pointed ? (shown?.answer ?? null) : null;
}

async function question(doc: string | null, block: string, pointed: NonNullable<Pointed>): Promise<Shown> {
  if (pointed.side === "cells") return { side: "cells", window: await request<CellWindow>("window", { doc, block, cell: pointed.at }) };
  return { side: "inputs", window: await request<InputWindow>("window", { doc, block, input: pointed.at }) };
}
