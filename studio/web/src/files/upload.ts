// A file's bytes to the server; a refusal is shown and gives null.
import type { Failure } from "../net/types";
import { get, toast } from "../state/store";
import { bytes } from "../canvas/looks";

export async function upload<T>(query: string, file: File): Promise<T | null> {
  const most = get().hello?.limits.upload ?? Infinity;
  if (file.size > most) {
    toast(`${file.name} has ${bytes(file.size)}; at most ${bytes(most)} can be sent`, "error");
    return null;
  }
  try {
    const answer = await fetch(`upload?${query}`, { method: "POST", body: file });
    const body = (await answer.json()) as T | { error: Failure };
    if (answer.ok) return body as T;
    const { error } = body as { error: Failure };
    toast(`${file.name}: ${error.message}${error.legal ? `; ${error.legal}` : ""}`, "error");
  } catch {
    toast(`${file.name} could not be sent: the server does not answer`, "error");
  }
  return null;
}
