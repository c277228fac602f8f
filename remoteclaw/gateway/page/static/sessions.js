// The list of sessions: what waits for a person first, then by activity; searched and filtered.

import { ago, button, count, el, fill, id, say } from "./dom.js";
import { nameOf, placeOf } from "./session_keys.js";

const EVERY_MS = 5000;
/** How long a person types on, at most, before it is looked for. */
const TYPING_MS = 250;
const PAGE = 50;
const KEPT = "remoteclaw.sessions";
const STATES = { asks: "waits for a person", running: "works", scheduled: "waits for a worker", idle: "is idle" };

export function sessionsList(link) {
  const wanted = { query: "", inWords: false, state: "", channel: "", agent: "", ...JSON.parse(sessionStorage.getItem(KEPT) ?? "{}") };
  const list = el("ul", { class: "sessions" });
  const search = el("input", { type: "search", placeholder: "Search", "aria-label": "Search conversations", value: wanted.query, oninput: () => later(TYPING_MS) });
  const inWords = el("input", { type: "checkbox", checked: wanted.inWords, onchange: look });
  const state = el("select", { onchange: look }, option("", "any state"), Object.entries(STATES).map(([value, text]) => option(value, text)));
  const channel = el("select", { onchange: look }), agent = el("select", { onchange: look });
  const filters = el("details", { class: "filters", open: Boolean(wanted.state || wanted.channel || wanted.agent || wanted.inWords) },
    el("summary", { text: "Filter" }),
    el("label", {}, inWords, " in what was said"),
    [["State", state], ["Channel", channel], ["Agent", agent]].map(([text, select]) => el("label", {}, text, select)));
  const note = el("p", { class: "notice", role: "status", hidden: true });
  const more = button("Show more", () => { limit += PAGE; look(); }, { hidden: true });
  const begin = el("a", { class: "new", href: "#/", onclick: newConversation }, "New conversation");
  const element = el("div", {}, begin, search, filters, note, list, more);
  const rows = new Map();
  let timer = null, limit = PAGE, asked = 0, last = "";
  state.value = wanted.state;
  offer(channel, "any channel", [], wanted.channel);
  offer(agent, "any agent", [], wanted.agent);

  function newConversation(event) {
    event.preventDefault();
    location.hash = `#/c/${id().slice(16)}`;
  }

  async function look() {
    clearTimeout(timer);
    const own = ++asked;
    Object.assign(wanted, { query: search.value.trim(), inWords: inWords.checked, state: state.value, channel: channel.value, agent: agent.value });
    const next = JSON.stringify(wanted);
    if (next !== last) limit = Math.min(limit, PAGE);
    last = next;
    sessionStorage.setItem(KEPT, next);
    try {
      const found = await link.call("sessions.search", { ...wanted, state: wanted.state || null, channel: wanted.channel || null, agent: wanted.agent || null, limit });
      if (own !== asked) return;  // a later look has been asked for
      show(found);
    } catch (error) {
      if (own !== asked) return;
      if (error.code !== "UNAVAILABLE") say(note, error.message);  // else the status line says that it is away
    }
    // What was said is searched through when it is asked for, and not every few seconds.
    if (!(wanted.inWords && wanted.query)) later(EVERY_MS);
  }

  function later(pause) {
    clearTimeout(timer);
    timer = setTimeout(() => document.visibilityState === "visible" ? look() : later(EVERY_MS), pause);
  }

  function show(found) {
    offer(channel, "any channel", found.channels, wanted.channel);
    offer(agent, "any agent", found.agents, wanted.agent);
    const isNarrowed = wanted.query || wanted.state || wanted.channel || wanted.agent;
    const nothing = found.sessions.length || !isNarrowed ? "" : "Nothing fits. ";
    say(note, nothing + (found.searched ? `Only the newest ${count(found.searched)} sessions were searched.` : ""));
    more.hidden = found.isComplete;
    const keys = new Set(found.sessions.map((session) => session.key));
    for (const [key, row] of rows) {
      if (!keys.has(key)) { row.element.remove(); rows.delete(key); }
    }
    let place = list.firstElementChild;
    for (const session of found.sessions) {
      if (!rows.has(session.key)) rows.set(session.key, sessionRow());
      const { element: row, show: draw } = rows.get(session.key);
      draw(session, wanted.query);
      if (row === place) place = place.nextElementSibling;
      else list.insertBefore(row, place);  // who stays where they are keep the focus
    }
  }

  /** Look again soon, however much is told meanwhile. */
  function told({ event }) {
    if (["web.event", "session.ask", "session.outcome"].includes(event) && !(wanted.inWords && wanted.query)) later(300);
  }

  addEventListener("hashchange", () => rows.forEach((row) => row.mark()));
  function connected() {
    begin.hidden = !link.scopes.includes("write");
    return look();
  }

  return { element, connected, told };
}

function option(value, text) {
  return el("option", { value, text });
}

/** Have a select offer what there is, and what is chosen. */
function offer(select, any, values, chosen) {
  const wanted = [...new Set([...values, ...(chosen ? [chosen] : [])])].sort();
  if (select.dataset.offered === wanted.join("\n") && select.options.length) return;
  select.dataset.offered = wanted.join("\n");
  fill(select, option("", any), wanted.map((value) => option(value, value)));
  select.value = chosen;
}

/** Return the row of a session, whose element stays. */
function sessionRow() {
  const title = el("span", { class: "title", dir: "auto" }), about = el("span", { class: "about" });
  const at = el("time"), excerpt = el("span", { class: "excerpt", hidden: true });
  const place = el("a", {}, title, about, at, excerpt);
  const element = el("li", {}, place);
  let shown = "";

  function mark() {
    if (place.getAttribute("href") === (location.hash || "#/")) place.setAttribute("aria-current", "page");
    else place.removeAttribute("aria-current");
  }

  function show(session, query) {
    const next = JSON.stringify([session, ago(session.lastMessageMs), placeOf(session.key), query]);
    if (next === shown) return;
    shown = next;
    const state = session.asks ? "asks you" : session.state === "idle" ? "" : STATES[session.state];
    element.className = session.asks ? "asks" : session.state;
    place.href = placeOf(session.key);
    title.textContent = session.label ?? session.title ?? nameOf(session.key);
    about.textContent = [session.channel, session.agent, state].filter(Boolean).join(" · ");
    at.textContent = ago(session.lastMessageMs);
    excerpt.hidden = !session.excerpt;
    if (session.excerpt) fill(excerpt, `${session.excerpt.who}: `, marked(session.excerpt.text, query));
    mark();
  }

  return { element, show, mark };
}

/** Return a text in parts, of which that is marked that was looked for. */
function marked(text, query) {
  const at = text.toLowerCase().indexOf(query.toLowerCase());
  if (at < 0) return [text];
  const end = at + query.length;
  return [text.slice(0, at), el("mark", { text: text.slice(at, end) }), text.slice(end)];
}
