// The connection to the gateway: sends calls, receives events, and reconnects when it is lost.

const PROTOCOL = 3;
const PAUSES_MS = [250, 500, 1000, 2000, 5000];
/** How long the gateway may take to answer: it waits for Redis for five seconds. */
const ANSWER_MS = 6000;
/** The WebSocket close code with which the gateway ends a connection without a valid login. */
const CLOSE_REFUSED = 1008;
/** The name under which the page stores its half of the login; the other half is the cookie. */
const KEY = "remoteclaw.key";
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
  #reconnectTimer = null;
  #silenceTimer = null;  // when it fires, the connection counts as lost
  #maxSilenceMs = ANSWER_MS;
  #isPolling = false;
  scopes = [];
  /** Why the gateway is away, or why the person is not logged in. */
  reason = "";

  /**
   * Connect, and stay connected. It dispatches `event` for each event of the gateway, and `state`:
   * `connected` (again also when Redis is available again), `away`, or `locked` without a login.
   */
  start() {
    addEventListener("online", () => this.#check());
    document.addEventListener("resume", () => this.#check());
    document.addEventListener("visibilitychange", () => {
      if (document.visibilityState === "visible") this.#check();
    });
    this.#connect();
  }

  /** Call a method of the gateway; rejects with `Refused`. `fields` are added to the request frame. */
  call(method, params = {}, fields = {}) {
    return new Promise((resolve, reject) => {
      if (this.#socket?.readyState !== WebSocket.OPEN) {
        reject(new Refused({ code: "UNAVAILABLE", message: "RemoteClaw is away.", retryable: true }));
        return;
      }
      const id = `p${this.#ids++}`;
      this.#pending.set(id, { resolve, reject });
      this.#post({ type: "req", id, method, params, ...fields });
    });
  }

  /**
   * Call `show(result)` with the result of a method now and after each change, until the connection
   * is lost. Errors go to `fail(error)`, except those that the status line shows. Return a function that ends it.
   */
  follow(method, params, show, fail = () => {}) {
    const id = `p${this.#ids++}`;
    this.#pending.set(id, { resolve: show, reject: (error) => error.code === "UNAVAILABLE" || fail(error), isFollowed: true });
    this.#post({ type: "req", id, method, params, follow: true });
    return () => this.#pending.delete(id) && this.#post({ type: "unfollow", id });
  }

  #post(frame) {
    if (this.#socket?.readyState === WebSocket.OPEN) this.#socket.send(JSON.stringify(frame));
  }

  #connect() {
    clearTimeout(this.#reconnectTimer);
    this.#socket?.close();  // one that is still connecting
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    const socket = this.#socket = new WebSocket(`${scheme}://${location.host}/page/ws`);
    let wasOpen = false;
    socket.onopen = () => { wasOpen = true; };
    socket.onclose = ({ code }) => {
      const isLoggedOut = code === CLOSE_REFUSED && this.#maxSilenceMs !== ANSWER_MS;  // it was connected
      this.#lose(socket, isLoggedOut ? "locked" : wasOpen ? "away" : "");
    };
    socket.onmessage = ({ data }) => {
      if (socket !== this.#socket) return;
      this.#expectWithin(this.#maxSilenceMs);
      this.#receive(socket, JSON.parse(data));
    };
    this.#expectWithin(this.#maxSilenceMs = ANSWER_MS);
  }

  /** Abandon the connection if no frame arrives within `ms`: the other end may be gone. */
  #expectWithin(ms) {
    clearTimeout(this.#silenceTimer);
    const socket = this.#socket;
    this.#silenceTimer = setTimeout(() => this.#lose(socket, "away"), ms);
  }

  /** Abandon a connection; an empty state means that the login has to be checked. */
  async #lose(socket, state) {
    if (socket !== this.#socket) return;
    this.#socket = null;
    clearTimeout(this.#silenceTimer);
    socket.close();  // its `close` event may come only after a minute
    for (const { reject } of this.#pending.values()) {
      reject(new Refused({ code: "UNAVAILABLE", message: "The connection was lost.", retryable: true }));
    }
    this.#pending.clear();
    if (state === "locked") return this.#setState("locked", "You are not logged in any more.");
    if (!state) {  // a refused upgrade looks like a gateway that is away
      const signal = AbortSignal.timeout(ANSWER_MS);
      const answer = await get("/page/whoami", { signal }).catch(() => null);
      const why = answer?.status === 401 && await reasonOf(answer);
      if (this.#socket) return;
      if (why) return this.#setState("locked", why);
    }
    this.#setState("away", AWAY);
    this.#reconnectAfter(PAUSES_MS[Math.min(this.#failures++, PAUSES_MS.length - 1)]);
  }

  #setState(state, reason = "") {
    this.reason = reason;
    this.dispatchEvent(new CustomEvent("state", { detail: state }));
  }

  #reconnectAfter(ms) {
    clearTimeout(this.#reconnectTimer);
    this.#reconnectTimer = setTimeout(() => this.#connect(), ms);
  }

  /** Check the connection: after sleep or a change of network it may be dead without a `close` event. */
  #check() {
    if (this.#socket?.readyState !== WebSocket.OPEN) return this.#reconnectAfter(0);
    this.#expectWithin(ANSWER_MS);
    this.call("health").catch(() => {});
  }

  /** Check whether all calls fail; while they do, the state is `away`. */
  async #pollHealth() {
    if (this.#isPolling) return;
    this.#isPolling = true;
    let wasAway = false;
    try {
      for (;;) {
        const error = await this.call("health").then(() => null, (refused) => refused);
        if (this.#socket?.readyState !== WebSocket.OPEN) return;
        if (error?.code !== "UNAVAILABLE") break;
        this.#setState("away", error.message);
        wasAway = true;
        await new Promise((resolve) => { setTimeout(resolve, PAUSES_MS[2]); });
      }
      if (wasAway) this.#setState("connected");
    } finally {
      this.#isPolling = false;
    }
  }

  #receive(socket, frame) {
    if (frame.type === "res") {
      const waiting = this.#pending.get(frame.id);
      if (!waiting) return;
      if (!waiting.isFollowed) this.#pending.delete(frame.id);
      if (frame.ok) waiting.resolve(frame.payload);
      else {
        waiting.reject(new Refused(frame.error));
        if (frame.error.code === "UNAVAILABLE") this.#pollHealth();
      }
    } else if (frame.event === "connect.challenge") {
      this.#authenticate(socket);
    } else {
      this.dispatchEvent(new CustomEvent("event", { detail: frame }));
    }
  }

  async #authenticate(socket) {
    const client = { id: "page", version: "1", platform: "web", mode: "ui" };
    try {
      const hello = await this.call("connect", { minProtocol: PROTOCOL, maxProtocol: PROTOCOL, client, auth: { token: storedKey() } });
      this.scopes = hello.auth.scopes;
      this.#failures = 0;
      this.#expectWithin(this.#maxSilenceMs = 2 * hello.policy.tickIntervalMs);
      this.#setState("connected");
    } catch (error) {
      this.#lose(socket, error.code === "UNAUTHORIZED" ? "" : "away");
    }
  }
}

/** Return the page's half of the login; empty without one. */
function storedKey() {
  return localStorage.getItem(KEY) ?? "";
}

/** Store the page's half of the login; null removes it. */
export function storeKey(key) {
  if (key) localStorage.setItem(KEY, key);
  else localStorage.removeItem(KEY);
}

/** Return why the gateway has refused a request. */
export async function reasonOf(answer) {
  return (await answer.json().catch(() => null))?.error?.message ?? "The login failed.";
}

/** Send a GET request to the gateway over HTTP. */
export function get(path, options = {}) {
  return fetch(path, { headers: { "X-RemoteClaw-Page": "1", "X-RemoteClaw-Key": storedKey() }, ...options });
}

/** Send a POST request to the gateway over HTTP: a file, or a value as JSON. */
export function post(path, body) {
  return get(path, { method: "POST", body: body instanceof Blob ? body : JSON.stringify(body) });
}
