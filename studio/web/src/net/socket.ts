// One connection to the server: requests with answers, events, and a new attempt whenever it breaks. A request that was
// under way when the connection broke fails with kind "lost"; whoever sent it decides whether to send it again.
import type { Binary, Failure, ServerEvent } from "./types";

export class RequestFailed extends Error {
  constructor(readonly failure: Failure) {
    super(failure.message);
  }
}

interface Waiting {
  resolve(value: unknown): void;
  reject(error: RequestFailed): void;
}

export interface Listener {
  opened(): void;
  lost(): void;
  event(event: ServerEvent): void;
}

const LOST: Failure = { kind: "lost", message: "the connection to the server was lost" };

export class Connection {
  private socket: WebSocket | null = null;
  private next = 1;
  private wait = 250;
  private readonly waiting = new Map<number, Waiting>();

  constructor(
    private readonly address: string,
    private readonly listener: Listener,
  ) {}

  open(): void {
    const socket = new WebSocket(this.address);
    socket.binaryType = "arraybuffer";
    socket.onopen = () => {
      this.socket = socket;
      this.wait = 250;
      this.listener.opened();
    };
    socket.onmessage = (message) => {
      if (typeof message.data === "string") this.text(message.data);
      else this.binary(message.data as ArrayBuffer);
    };
    socket.onclose = () => this.closed();
  }

  request<T>(op: string, fields: object = {}): Promise<T> {
    const { socket } = this;
    if (!socket || socket.readyState !== WebSocket.OPEN) return Promise.reject(new RequestFailed(LOST));
    const id = this.next++;
    return new Promise<T>((resolve, reject) => {
      this.waiting.set(id, { resolve: resolve as (value: unknown) => void, reject });
      socket.send(JSON.stringify({ id, op, ...fields }));
    });
  }

  private closed(): void {
    const was = this.socket !== null;
    this.socket = null;
    for (const waiting of this.waiting.values()) waiting.reject(new RequestFailed(LOST));
    this.waiting.clear();
    if (was) this.listener.lost();
    setTimeout(() => this.open(), this.wait);
    this.wait = Math.min(this.wait * 2, 4000);
  }

  private text(data: string): void {
    const message = JSON.parse(data) as { id: number; ok: boolean; result: unknown; error: Failure } | ServerEvent;
    if ("event" in message) {
      this.listener.event(message);
      return;
    }
    const waiting = this.waiting.get(message.id);
    this.waiting.delete(message.id);
    if (message.ok) waiting?.resolve(message.result);
    else waiting?.reject(new RequestFailed(message.error));
  }

  private binary(data: ArrayBuffer): void {
    const length = new DataView(data).getUint32(0, true);
    const head = JSON.parse(new TextDecoder().decode(new Uint8Array(data, 4, length))) as { id: number; result: unknown };
    const answer: Binary<unknown> = { head: head.result, data: new Float32Array(data, 4 + length) };
    this.waiting.get(head.id)?.resolve(answer);
    this.waiting.delete(head.id);
  }
}
