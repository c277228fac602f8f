// The list of sessions: what waits for a person first, then by activity.

import { ago, el, fill } from "./dom.js";

const EVERY_MS = 5000;

export function sessionsList(link) {
  const list = el("ul", { class: "sessions" });
  const search = el("input", { type: "search", placeholder: "Search", "aria-label": "Search conversations", oninput: () => look() });
  const element = el("div", {},
    el("a", { class: "new", href: "#/", onclick: newConversation }, "New conversation"), search, list);
  let timer = null;
  let shown = "";

  function newConversation(event) {
    event.preventDefault();
    location.hash = `#/c/${crypto.getRandomValues(new Uint32Array(2)).reduce((text, part) => text + part.toString(16), "")}`;
  }

  async function look() {
    clearTimeout(timer);
    try {
      const [found, waiting] = await Promise.all([
        link.call("sessions.list", { filter: search.value || null, limit: 200 }),
        link.call("asks.list"),
      ]);
      const asking = new Set(waiting.asks.map((ask) => ask.sessionKey));
      const sessions = [...found.sessions].sort((one, other) =>
        asking.has(other.key) - asking.has(one.key) || other.lastMessageMs - one.lastMessageMs);
      const next = JSON.stringify([sessions, [...asking], link.own]);
      if (next !== shown) {
        shown = next;
        fill(list, sessions.map((session) => row(session, { asks: asking.has(session.key), own: link.own })));
      }
    } catch { /* the status line says that it is away */ }
    timer = setTimeout(() => document.visibilityState === "visible" ? look() : (timer = setTimeout(look, EVERY_MS)), EVERY_MS);
  }

  /** Look again soon, however much is told meanwhile. */
  function told({ event }) {
    if (!["web.event", "session.ask", "session.outcome"].includes(event)) return;
    clearTimeout(timer);
    timer = setTimeout(look, 300);
  }

  return { element, connected: look, told };
}

/** Where a session is shown: one's own conversations to write in, others to read. */
function placeOf(key, own) {
  if (!own || !key.startsWith(own)) return `#/s/${encodeURIComponent(key)}`;
  const conversation = key.slice(own.length);
  return conversation === "_" ? "#/" : `#/c/${conversation}`;
}

function row(session, { asks, own }) {
  const states = { running: "works", scheduled: "waits for a worker", idle: "" };
  const state = asks ? "asks you" : states[session.state] ?? session.state;
  return el("li", { class: asks ? "asks" : session.state },
    el("a", { href: placeOf(session.key, own) },
      el("span", { class: "title", text: session.label ?? session.title ?? session.key }),
      el("span", { class: "about", text: [session.channel, session.agent, state].filter(Boolean).join(" · ") }),
      el("time", { text: ago(session.lastMessageMs) })));
}
