// The list of sessions, with search and filters: those that wait for a person first, then by activity.

import { ago, button, count, el, fill, newId, pauseOf, setMessage } from "./dom.js";
import { addressOf, nameOf } from "./session_keys.js";

/** How often the ages of the rows are updated. */
const AGES_MS = 30_000;
/** The pause after typing before the search begins. */
const TYPING_MS = 250;
const PAGE = 50;
/** The key of the filters in the session storage. */
const STORED = "remoteclaw.search";
const STATES = { requests: "waits for a person", running: "works", scheduled: "waits for a worker", terminal: "is open in a terminal", idle: "is idle" };

export function sessionsList(link) {
  const filter = { query: "", state: "", channel: "", agent: "", ...JSON.parse(sessionStorage.getItem(STORED) ?? "{}") };
  const list = el("ul", { class: "sessions" });
  const search = el("input", { type: "search", placeholder: "Search", "aria-label": "Search conversations", value: filter.query, oninput: () => refreshLater(TYPING_MS) });
  const state = el("select", { onchange: refresh }, option("", "any state"), Object.entries(STATES).map(([value, text]) => option(value, text)));
  const channel = el("select", { onchange: refresh }), agent = el("select", { onchange: refresh });
  const filters = el("details", { class: "filters", open: Boolean(filter.state || filter.channel || filter.agent) },
    el("summary", { text: "Filter" }),
    [["State", state], ["Channel", channel], ["Agent", agent]].map(([text, select]) => el("label", {}, text, select)));
  const note = el("p", { class: "notice", role: "status", hidden: true });
  const more = button("Show more", () => { limit += PAGE; refresh(); }, { hidden: true });
  const begin = el("a", { class: "new", href: "#/", onclick: newConversation }, "New conversation");
  const element = el("div", {}, begin, search, filters, note, list, more);
  const rows = new Map();
  let timer = null, limit = PAGE, calls = 0, last = "";
  let found = null;  // the shown result
  let unfollow = () => {};
  state.value = filter.state;
  setOptions(channel, "any channel", [], filter.channel);
  setOptions(agent, "any agent", [], filter.agent);

  function newConversation(event) {
    event.preventDefault();
    location.hash = `#/c/${newId().slice(16)}`;
  }

  async function refresh() {
    clearTimeout(timer);
    unfollow();
    const number = ++calls;
    Object.assign(filter, { query: search.value.trim(), state: state.value, channel: channel.value, agent: agent.value });
    const next = JSON.stringify(filter);
    if (next !== last) limit = Math.min(limit, PAGE);
    last = next;
    sessionStorage.setItem(STORED, next);
    const params = { filter: filter.query, state: filter.state || null, channel: filter.channel || null, agent: filter.agent || null, limit };
    const fail = (error) => error.code !== "UNAVAILABLE" && setMessage(note, error.message);  // which the status line shows
    if (!filter.query) {
      unfollow = link.follow("sessions.search", params, show, fail);
      return;
    }
    // A search is expensive, so it is not followed.
    await link.call("sessions.search", params).then((result) => number === calls && show(result), (error) => number === calls && fail(error));
  }

  function refreshLater(ms) {
    clearTimeout(timer);
    timer = setTimeout(refresh, ms);
  }

  function show(result) {
    found = result;
    setOptions(channel, "any channel", found.channels, filter.channel);
    setOptions(agent, "any agent", found.agents, filter.agent);
    const isFiltered = filter.query || filter.state || filter.channel || filter.agent;
    const nothing = found.sessions.length || !isFiltered ? "" : "Nothing fits. ";
    setMessage(note, nothing + (found.searched ? `Only the newest ${count(found.searched)} sessions were searched.` : ""));
    more.hidden = found.isComplete;
    const keys = new Set(found.sessions.map((session) => session.key));
    for (const [key, row] of rows) {
      if (!keys.has(key)) { row.element.remove(); rows.delete(key); }
    }
    let next = list.firstElementChild;
    for (const session of found.sessions) {
      if (!rows.has(session.key)) rows.set(session.key, sessionRow());
      const { element: row, show: draw } = rows.get(session.key);
      draw(session, filter.query);
      if (row === next) next = next.nextElementSibling;
      else list.insertBefore(row, next);  // unmoved rows keep the focus
    }
  }

  addEventListener("hashchange", () => rows.forEach((row) => row.mark()));
  setInterval(() => found && show(found), AGES_MS);

  function onConnected() {
    begin.hidden = !link.scopes.includes("write");
    return refresh();
  }

  return { element, onConnected };
}

function option(value, text) {
  return el("option", { value, text });
}

/** Set the options of a select: one for any value, the values, and the chosen one. */
function setOptions(select, any, values, chosen) {
  const all = [...new Set([...values, ...(chosen ? [chosen] : [])])].sort();
  if (select.dataset.offered === all.join("\n") && select.options.length) return;
  select.dataset.offered = all.join("\n");
  fill(select, option("", any), all.map((value) => option(value, value)));
  select.value = chosen;
}

/** Return the row of a session, which is updated in place. */
function sessionRow() {
  const title = el("span", { class: "title", dir: "auto" }), about = el("span", { class: "about" });
  const at = el("time"), excerpt = el("span", { class: "excerpt", hidden: true });
  const anchor = el("a", {}, title, about, at, excerpt);
  const element = el("li", {}, anchor);
  let shown = "";

  /** Mark the row if its session is open. */
  function mark() {
    if (anchor.getAttribute("href") === (location.hash || "#/")) anchor.setAttribute("aria-current", "page");
    else anchor.removeAttribute("aria-current");
  }

  function show(session, query) {
    const next = JSON.stringify([session, ago(session.lastMessageMs), addressOf(session.key), query]);
    if (next === shown) return;
    shown = next;
    const state = session.requests ? "asks you" : session.state === "idle" ? "" : [session.state === "terminal" && STATES.terminal, pauseOf(session)].filter(Boolean).join(", ") || STATES[session.state];
    element.className = session.requests ? "requests" : session.state;
    anchor.href = addressOf(session.key);
    title.textContent = session.label ?? session.title ?? nameOf(session.key);
    about.textContent = [session.channel, session.agent, state].filter(Boolean).join(" · ");
    at.textContent = ago(session.lastMessageMs);
    excerpt.hidden = !session.excerpt;
    if (session.excerpt) fill(excerpt, `${session.excerpt.who}: `, marked(session.excerpt.text, query));
    mark();
  }

  return { element, show, mark };
}

/** Return a text in parts, in which the first match of the query is marked. */
function marked(text, query) {
  const at = text.toLowerCase().indexOf(query.toLowerCase());
  if (at < 0) return [text];
  const end = at + query.length;
  return [text.slice(0, at), el("mark", { text: text.slice(at, end) }), text.slice(end)];
}
