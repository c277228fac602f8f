// The open requests of all sessions, and the view that lists them.

import { body, choices, deadline, headline, outcome } from "./request_card.js";
import { ago, button, el, fill } from "./dom.js";
import { sessionLink } from "./session_keys.js";

/** The interval of polls: events about requests are sent only to subscribers of their session. */
const EVERY_MS = 2000;

/** The requests that can be answered. It dispatches `change` when they have changed. */
export class OpenAsks extends EventTarget {
  #link;
  #timer = null;
  #shown = "";
  list = [];

  constructor(link) {
    super();
    this.#link = link;
    link.addEventListener("event", ({ detail }) => detail.event === "session.ask" && this.refresh());
    link.addEventListener("state", ({ detail }) => detail === "connected" && this.refresh());
  }

  async refresh() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.refresh(), EVERY_MS);
    const { asks } = await this.#link.call("asks.list").catch(() => ({}));
    const next = JSON.stringify(asks);
    if (!asks || next === this.#shown) return;  // after an error, the last list stays
    this.#shown = next;
    this.list = asks;
    this.dispatchEvent(new Event("change"));
  }
}

export function asksView(link, open) {
  const notice = el("p", { class: "notice", text: "Nothing waits for you." });
  const { element, refresh, close } = askList(link, open, { onCount: (count) => { notice.hidden = count > 0; } });
  return {
    element: el("section", {}, el("h1", { text: "Requests" }), notice, element),
    onConnected: () => { refresh(); return open.refresh(); },
    close,
  };
}

/** Return the list of the open requests for which `fits(ask)`; `onCount` receives their number. */
export function askList(link, open, { fits = () => true, onCount = () => {} }) {
  const element = el("ul", { class: "asks" });
  const items = new Map();

  function refresh() {
    const fitting = open.list.filter(fits);
    const openIds = new Set(fitting.map((ask) => ask.id));
    for (const ask of fitting) {
      if (!items.has(ask.id)) {
        items.set(ask.id, askItem(link, ask, { tag: "li" }));
        element.append(items.get(ask.id).element);
      } else items.get(ask.id).show(ask);
    }
    for (const [id, item] of items) {
      if (!openIds.has(id)) item.refresh();  // it stays, and shows its outcome
    }
    onCount(openIds.size);
  }

  open.addEventListener("change", refresh);
  return { element, refresh, close: () => open.removeEventListener("change", refresh) };
}

/** Return an item in which a request is answered, and which then shows the outcome. */
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
    ask.change?.needsRestart.length ? el("p", { class: "about", text: `It would take effect after a restart: ${ask.change.needsRestart.join(", ")}.` }) : null,
    until, answering, done);
  let isOver = false;

  function show(now) {
    if (isOver) return;
    const text = deadline(now);
    if (until.textContent !== text) until.textContent = text;
    if (["open", "lapsed"].includes(now.state)) return;
    isOver = true;
    const hadFocus = element.contains(document.activeElement);
    answering.remove();
    until.remove();
    done.textContent = outcome(now);
    if (hadFocus) element.focus();
  }

  /** Update the item from the gateway. */
  async function refresh() {
    if (isOver) return;
    try {
      show(await link.call("asks.show", { id: ask.id }));
    } catch (error) {
      if (error.code === "NOT_FOUND") show({ ...ask, state: "void", untilMs: null });
    }
  }

  async function answer(verdict, reason) {
    const reply = await link.call("asks.answer", { id: ask.id, verdict, reason });
    await refresh();
    if (!isOver) throw new Error(reply.detail);
  }

  async function showAll() {
    const full = await link.call("asks.show", { id: ask.id });
    fill(what, body(full));
    more.remove();
  }

  show(ask);
  return { element, show, refresh };
}
