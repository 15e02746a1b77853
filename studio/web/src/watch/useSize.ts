import { useEffect, useRef, useState } from "react";

/** An element and its size, kept up to date. */
export function useSize<T extends HTMLElement>(): [React.RefObject<T | null>, { width: number; height: number }] {
  const box = useRef<T>(null);
  const [size, setSize] = useState({ width: 1, height: 1 });
  useEffect(() => {
    const el = box.current;
    if (!el) return;
    const watcher = new ResizeObserver(() => setSize({ width: el.clientWidth || 1, height: el.clientHeight || 1 }));
    watcher.observe(el);
    return () => watcher.disconnect();
  }, []);
  return [box, size];
}
