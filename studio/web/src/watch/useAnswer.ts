// An answer of the server that a view shows: asked again when its question changes; the last answer stays until the next.
import { useEffect, useRef, useState } from "react";
import { RequestFailed } from "../net/socket";
import { request, said } from "../state/sync";

export interface Answer<T> {
  readonly value: T | null;
  readonly why: string | null;
}

/** `version` is whatever makes an old answer wrong though the question is the same. */
export function useAnswer<T>(op: string, fields: object | null, version: string): Answer<T> {
  const [answer, setAnswer] = useState<Answer<T>>({ value: null, why: null });
  const question = fields ? JSON.stringify(fields) : "";
  const latest = useRef("");
  useEffect(() => {
    const asked = `${question}\n${version}`;
    latest.current = asked;
    if (!question) return;
    request<T>(op, JSON.parse(question) as object)
      .then((value) => {
        if (latest.current === asked) setAnswer({ value, why: null });
      })
      .catch((error: unknown) => {
        if (!(error instanceof RequestFailed)) throw error;
        if (latest.current === asked && error.failure.kind !== "lost") setAnswer({ value: null, why: said(error) });
      });
  }, [op, question, version]);
  return answer;
}
