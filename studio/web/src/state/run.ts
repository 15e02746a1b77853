// Run, step and stop. The server runs the page it has, so an edit under way is waited for.
import { ask, settled } from "./sync";
import { get } from "./store";

export function running(): boolean {
  const phase = get().run?.state;
  return phase === "running" || phase === "paused";
}

/** A session with INFINITE_LOOP repeats until it is stopped, as in enuSpace; any other runs once. */
export async function run(): Promise<void> {
  await settled();
  await ask("run", { doc: get().doc, cycles: 0 });
}

export async function step(): Promise<void> {
  await settled();
  await ask("step", { doc: get().doc });
}

export async function stop(): Promise<void> {
  if (running()) await ask("stop", { doc: get().doc });
}
