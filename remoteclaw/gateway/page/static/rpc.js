// The connection to the gateway: calls and events, and all over again when it is lost.

const PROTOCOL = 3;
const PAUSES_MS = [250, 500, 1000, 2000, 5000];
/** How long the gateway may take to answer: it waits for Redis for five seconds. */
const ANSWER_MS = 6000;
/** The code of a connection that the gateway ends because of who has it. */
const REFUSED = 1008;
const AWAY = "RemoteClaw is away. Trying again…";

class Refused extends Error {
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
  #timer = null;  // of the next attempt
  #quiet = null;  // until a connection counts as lost of which nothing is heard
  #quietMs = ANSWER_MS;
  #isAsking = false;
  scopes = [];
  /** Why it is away. */
  why = "";

  /**
   * Connect, and stay connected. It dispatches `state` and `told`: `connected` also when all is well
   * again behind the gateway, `away`, and `locked`.
   */
  start() {
    addEventListener("online", () => this.#check());
    document.addEventListener("resume", () => this.#check());
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
    this.#socket?.close();  // one that takes its time
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    const socket = this.#socket = new WebSocket(`${scheme}://${location.host}/page/ws`);
    let wasOpen = false;
    socket.onopen = () => { wasOpen = true; };
    socket.onclose = ({ code }) => {
      const isOut = code === REFUSED && this.#quietMs !== ANSWER_MS;  // it was greeted
      this.#lose(socket, isOut ? "locked" : wasOpen ? "away" : "");
    };
    socket.onmessage = ({ data }) => {
      if (socket !== this.#socket) return;
      this.#within(this.#quietMs);
      this.#take(socket, JSON.parse(data));
    };
    this.#within(this.#quietMs = ANSWER_MS);
  }

  /** Give the connection up if nothing is heard for so long: it may be open at this end alone. */
  #within(ms) {
    clearTimeout(this.#quiet);
    const socket = this.#socket;
    this.#quiet = setTimeout(() => this.#lose(socket, "away"), ms);
  }

  /** Give a connection up; without a state, it has to be found out who one is. */
  async #lose(socket, state) {
    if (socket !== this.#socket) return;
    this.#socket = null;
    clearTimeout(this.#quiet);
    socket.close();  // whose end is told once the other side has answered, or after a minute
    for (const { reject } of this.#pending.values()) {
      reject(new Refused({ code: "UNAVAILABLE", message: "The connection was lost.", retryable: true }));
    }
    this.#pending.clear();
    if (!state) {  // an upgrade that is refused looks like a gateway that is away
      const signal = AbortSignal.timeout(ANSWER_MS);
      const answer = await get("/page/whoami", { signal }).catch(() => null);
      if (this.#socket) return;
      if (answer?.status === 401) state = "locked";
    }
    if (state === "locked") return this.#say("locked");
    this.#say("away", AWAY);
    this.#again(PAUSES_MS[Math.min(this.#failures++, PAUSES_MS.length - 1)]);
  }

  #say(state, why = "") {
    this.why = why;
    this.dispatchEvent(new CustomEvent("state", { detail: state }));
  }

  #again(pause) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#connect(), pause);
  }

  /** A computer that slept, or was in another network, may have a connection that is none: ask. */
  #check() {
    if (this.#socket?.readyState !== WebSocket.OPEN) return this.#again(0);
    this.#within(ANSWER_MS);
    this.call("health").catch(() => {});
  }

  /** Find out whether all calls are refused, and say so until they are answered again. */
  async #ask() {
    if (this.#isAsking) return;
    this.#isAsking = true;
    let wasAway = false;
    try {
      for (;;) {
        const error = await this.call("health").then(() => null, (refused) => refused);
        if (this.#socket?.readyState !== WebSocket.OPEN) return;
        if (error?.code !== "UNAVAILABLE") break;
        this.#say("away", error.message);
        wasAway = true;
        await new Promise((resolve) => { setTimeout(resolve, PAUSES_MS[2]); });
      }
      if (wasAway) this.#say("connected");
    } finally {
      this.#isAsking = false;
    }
  }

  #take(socket, frame) {
    if (frame.type === "res") {
      const waiting = this.#pending.get(frame.id);
      this.#pending.delete(frame.id);
      if (!waiting) return;
      if (frame.ok) waiting.resolve(frame.payload);
      else {
        waiting.reject(new Refused(frame.error));
        if (frame.error.code === "UNAVAILABLE") this.#ask();
      }
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
      this.#within(this.#quietMs = 2 * hello.policy.tickIntervalMs);
      this.#say("connected");
    } catch (error) {
      this.#lose(socket, error.code === "UNAUTHORIZED" ? "locked" : "away");
    }
  }
}

/** Get from the gateway what needs no connection. */
export function get(path, options = {}) {
  return fetch(path, { headers: { "X-RemoteClaw-Page": "1" }, ...options });
}

/** Post what needs none: a file, or something as JSON. */
export function post(path, body) {
  return get(path, { method: "POST", body: body instanceof Blob ? body : JSON.stringify(body) });
}
