// The connection to the gateway: calls and events, and all over again when it is lost.

const PROTOCOL = 3;
const PAUSES_MS = [250, 500, 1000, 2000, 5000];

export class Refused extends Error {
  constructor(error) {
    super(error.message);
    this.code = error.code;
    this.retryable = error.retryable;
  }
}

export class Link extends EventTarget {
  #socket = null;
  #pending = new Map();
  #ids = 0;
  #failures = 0;
  #timer = null;
  scopes = [];
  /** How the keys of one's own conversations begin, as soon as it is known. */
  own = null;

  /** Connect, and stay connected. It dispatches `state` (connected, away, locked) and `told`. */
  start() {
    addEventListener("online", () => this.#again(0));
    document.addEventListener("visibilitychange", () => {
      if (document.visibilityState === "visible") this.#check();
    });
    this.#connect();
  }

  /** Ask the gateway for something; rejects with `Refused`. `beside` stands beside the parameters. */
  call(method, params = {}, beside = {}) {
    return new Promise((resolve, reject) => {
      if (this.#socket?.readyState !== WebSocket.OPEN) {
        reject(new Refused({ code: "UNAVAILABLE", message: "RemoteClaw is away.", retryable: true }));
        return;
      }
      const id = `p${this.#ids++}`;
      this.#pending.set(id, { resolve, reject });
      this.#socket.send(JSON.stringify({ type: "req", id, method, params, ...beside }));
    });
  }

  #connect() {
    clearTimeout(this.#timer);
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    const socket = this.#socket = new WebSocket(`${scheme}://${location.host}/page/ws`);
    let wasOpen = false;
    socket.onopen = () => { wasOpen = true; };
    socket.onmessage = ({ data }) => this.#take(socket, JSON.parse(data));
    socket.onclose = ({ code }) => {
      if (socket !== this.#socket) return;
      for (const { reject } of this.#pending.values()) {
        reject(new Refused({ code: "UNAVAILABLE", message: "The connection was lost.", retryable: true }));
      }
      this.#pending.clear();
      this.#lost(code === 1008 ? "locked" : "away", wasOpen);
    };
  }

  async #lost(state, wasOpen) {
    if (!wasOpen && state !== "locked") {
      // An upgrade that is refused and a gateway that is away look the same to a page.
      const answer = await fetch("/page/whoami", { headers: { "X-RemoteClaw-Page": "1" } }).catch(() => null);
      if (answer?.status === 401) state = "locked";
    }
    this.dispatchEvent(new CustomEvent("state", { detail: state }));
    if (state !== "locked") this.#again(PAUSES_MS[Math.min(this.#failures++, PAUSES_MS.length - 1)]);
  }

  #again(pause) {
    if (this.#socket?.readyState === WebSocket.OPEN) return;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#connect(), pause);
  }

  /** A computer that slept may have a connection that is none any more: ask. */
  #check() {
    if (this.#socket?.readyState !== WebSocket.OPEN) return this.#again(0);
    const socket = this.#socket;
    const timer = setTimeout(() => socket.close(), 3000);
    this.call("health").then(() => clearTimeout(timer), () => clearTimeout(timer));
  }

  #take(socket, frame) {
    if (frame.type === "res") {
      const waiting = this.#pending.get(frame.id);
      this.#pending.delete(frame.id);
      if (!waiting) return;
      if (frame.ok) waiting.resolve(frame.payload);
      else waiting.reject(new Refused(frame.error));
    } else if (frame.event === "connect.challenge") {
      this.#hello(socket);
    } else {
      this.dispatchEvent(new CustomEvent("told", { detail: frame }));
    }
  }

  async #hello(socket) {
    const client = { id: "page", version: "1", platform: "web", mode: "ui" };
    try {
      const hello = await this.call("connect", { minProtocol: PROTOCOL, maxProtocol: PROTOCOL, client, auth: {} });
      this.scopes = hello.auth.scopes;
      this.#failures = 0;
      this.dispatchEvent(new CustomEvent("state", { detail: "connected" }));
    } catch {
      socket.close();
    }
  }
}

/** Post to the gateway what needs no connection. */
export function post(path, body, headers = {}) {
  const isForm = !(body instanceof Blob);
  return fetch(path, {
    method: "POST",
    headers: { "X-RemoteClaw-Page": "1", ...headers },
    body: isForm ? JSON.stringify(body) : body,
  });
}
