// What agents ask people for, wherever they work.

import { body, choices, deadline, headline, outcome } from "./cards.js";
import { ago, button, el, fill } from "./dom.js";
import { sessionLink } from "./session_keys.js";

/** Only who follows a session is told of its requests, and this is about all: it looks by itself. */
const EVERY_MS = 2000;

/** The requests that can be answered. It dispatches `change` when they are others. */
export class OpenAsks extends EventTarget {
  #link;
  #timer = null;
  #known = "";
  list = [];

  constructor(link) {
    super();
    this.#link = link;
    link.addEventListener("told", ({ detail }) => detail.event === "session.ask" && this.look());
    link.addEventListener("state", ({ detail }) => detail === "connected" && this.look());
  }

  async look() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.look(), EVERY_MS);
    const { asks } = await this.#link.call("asks.list").catch(() => ({}));
    const known = JSON.stringify(asks);
    if (!asks || known === this.#known) return;  // what was there may still be
    this.#known = known;
    this.list = asks;
    this.dispatchEvent(new Event("change"));
  }
}

export function asksView(link, open) {
  const notice = el("p", { class: "notice", text: "Nothing waits for you." });
  const { element, look, close } = askList(link, open, { told: (count) => { notice.hidden = count > 0; } });
  return {
    element: el("section", {}, el("h1", { text: "Requests" }), notice, element),
    connected: () => { look(); return open.look(); },
    close,
  };
}

/** Return those of the open requests that fit; `told` gets how many wait. */
export function askList(link, open, { fits = () => true, told = () => {} }) {
  const element = el("ul", { class: "asks" });
  const items = new Map();

  function look() {
    const found = open.list.filter(fits);
    const waiting = new Set(found.map((ask) => ask.id));
    for (const ask of found) {
      if (!items.has(ask.id)) {
        items.set(ask.id, askItem(link, ask, { tag: "li" }));
        element.append(items.get(ask.id).element);
      } else items.get(ask.id).show(ask);
    }
    for (const [id, item] of items) {
      if (!waiting.has(id)) item.look();  // it never vanishes silently
    }
    told(waiting.size);
  }

  open.addEventListener("change", look);
  return { element, look, close: () => open.removeEventListener("change", look) };
}

/** Return a request that is answered in place, and says what became of it. */
function askItem(link, ask, { tag = "div" } = {}) {
  const until = el("p", { class: "about until" });
  const done = el("p", { class: "done", role: "status" });
  const what = el("div", { class: "what" }, body(ask));
  const more = ask.isCut ? button("Show all of it", showAll) : null;
  const answering = link.scopes.includes("admin") ? choices(ask, answer)
    : el("p", { class: "about", text: "To answer needs a login with the scope admin." });
  const element = el(tag, { class: `ask ${ask.kind}`, tabindex: "-1" },
    el("h2", { text: headline(ask) }),
    el("p", { class: "about" }, sessionLink(ask.sessionKey),
      [ago(ask.askedMs), ask.kind === "change" ? ask.change.host : ask.where, ask.people.length && `for ${ask.people.join(", ")}`, ask.chat && `asked in ${ask.chat}`].filter(Boolean).map((part) => ` · ${part}`)),
    ask.unshown ? el("p", { class: "problem", text: `That chat does not show it: ${ask.unshown}` }) : null,
    what, more,
    ask.isAgain ? el("p", { text: "An earlier try at this was cut off: it may have been done already." }) : null,
    ask.change?.needsRestart.length ? el("p", { class: "about", text: `It would hold after a restart: ${ask.change.needsRestart.join(", ")}.` }) : null,
    until, answering, done);
  let isOver = false;

  function show(now) {
    if (isOver) return;
    const words = deadline(now);
    if (until.textContent !== words) until.textContent = words;
    if (["open", "lapsed"].includes(now.state)) return;
    isOver = true;
    const hadFocus = element.contains(document.activeElement);
    answering.remove();
    until.remove();
    done.textContent = outcome(now);
    if (hadFocus) element.focus();
  }

  /** Look what became of it. */
  async function look() {
    if (isOver) return;
    try {
      show(await link.call("asks.show", { id: ask.id }));
    } catch (error) {
      if (error.code === "NOT_FOUND") show({ ...ask, state: "void", untilMs: null });
    }
  }

  async function answer(verdict, reason) {
    const told = await link.call("asks.answer", { id: ask.id, verdict, reason });
    await look();
    if (!isOver) throw new Error(told.detail);
  }

  async function showAll() {
    const whole = await link.call("asks.show", { id: ask.id });
    fill(what, body(whole));
    more.remove();
  }

  show(ask);
  return { element, show, look };
}
