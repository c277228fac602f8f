// The list of sessions, with filters: those that wait for a person first, then by activity.

import { ago, button, count, el, fill, newId, pauseOf, setMessage } from "./dom.js";
import { icon, iconButton, stateMark } from "./icons.js";
import { addressOf, nameOf } from "./session_keys.js";

/** How often the ages of the rows are updated. */
const AGES_MS = 30_000;
const PAGE = 50;
/** The key of the filters in the session storage. */
const STORED = "remoteclaw.filter";
/** The key in the local storage of what was read. */
const READ = "remoteclaw.read";
/** How many sessions are remembered as read; older ones count as read. */
const MAX_READ = 500;
const STATES = { requests: "waits for a person", running: "works", scheduled: "waits for a worker", terminal: "is open in a terminal", idle: "is idle" };

export function sessionsList(link) {
  const filter = { state: "", channel: "", agent: "", ...JSON.parse(sessionStorage.getItem(STORED) ?? "{}") };
  const list = el("ul", { class: "sessions" });
  const state = el("select", { onchange: refresh }, option("", "any state"), Object.entries(STATES).map(([value, text]) => option(value, text)));
  const channel = el("select", { onchange: refresh }), agent = el("select", { onchange: refresh });
  const isNarrowed = Boolean(filter.state || filter.channel || filter.agent);
  const narrow = iconButton("filter", "Filter", toggleFilters, { "aria-expanded": String(isNarrowed), "aria-controls": "filters" });
  const filters = el("div", { class: "filters", id: "filters", hidden: !isNarrowed },
    [["State", state], ["Channel", channel], ["Agent", agent]].map(([text, select]) => el("label", {}, text, select)));
  const note = el("p", { class: "notice", role: "status", hidden: true });
  const more = button("Show more", () => { limit += PAGE; refresh(); }, { hidden: true });
  const begin = el("a", { class: "row", href: "#/", onclick: newConversation }, icon("compose"), "New conversation");
  const element = el("section", { class: "conversations" },
    el("div", { class: "heading" }, el("h2", { text: "Conversations" }), narrow), filters, note, list, more);
  const rows = new Map();
  let limit = PAGE, last = "";
  let found = null;  // the shown result
  let unfollow = () => {};
  state.value = filter.state;
  setOptions(channel, "any channel", [], filter.channel);
  setOptions(agent, "any agent", [], filter.agent);

  function toggleFilters() {
    filters.hidden = !filters.hidden;
    narrow.setAttribute("aria-expanded", String(!filters.hidden));
  }

  function newConversation(event) {
    event.preventDefault();
    location.hash = `#/c/${newId().slice(16)}`;
  }

  function refresh() {
    unfollow();
    Object.assign(filter, { state: state.value, channel: channel.value, agent: agent.value });
    const next = JSON.stringify(filter);
    if (next !== last) limit = Math.min(limit, PAGE);
    last = next;
    sessionStorage.setItem(STORED, next);
    const params = { state: filter.state || null, channel: filter.channel || null, agent: filter.agent || null, limit };
    const fail = (error) => error.code !== "UNAVAILABLE" && setMessage(note, error.message);  // which the status line shows
    unfollow = link.follow("sessions.search", params, show, fail);
  }

  function show(result) {
    found = result;
    setOptions(channel, "any channel", found.channels, filter.channel);
    setOptions(agent, "any agent", found.agents, filter.agent);
    const isFiltered = filter.state || filter.channel || filter.agent;
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
      draw(session);
      if (row === next) next = next.nextElementSibling;
      else list.insertBefore(row, next);  // unmoved rows keep the focus
    }
  }

  const update = () => found && show(found);
  addEventListener("hashchange", update);
  addEventListener("visibilitychange", update);
  setInterval(update, AGES_MS);

  function onConnected() {
    begin.hidden = !link.scopes.includes("write");
    return refresh();
  }

  return { element, begin, onConnected, listed: () => ({ sessions: found?.sessions ?? [], agents: found?.agents ?? [] }) };
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
  const letter = el("span", { class: "letter", "aria-hidden": "true" }), title = el("span", { class: "title", dir: "auto" });
  const state = el("span", { class: "states" }), at = el("time"), about = el("span", { class: "about" });
  const anchor = el("a", {}, letter, title, state, about);
  const element = el("li", {}, anchor);
  let shown = "";

  function show(session) {
    const address = addressOf(session.key), isHere = address === (location.hash || "#/");
    if (isHere && session.state === "idle" && document.visibilityState === "visible" && isUnread(session)) setRead(session);
    const next = JSON.stringify([session, ago(session.lastMessageMs), address, isHere, isUnread(session)]);
    if (next === shown) return;
    shown = next;
    anchor.href = address;
    if (isHere) anchor.setAttribute("aria-current", "page");
    else anchor.removeAttribute("aria-current");
    letter.textContent = [...session.agent][0];
    title.textContent = session.label ?? session.title ?? nameOf(session.key);
    at.textContent = ago(session.lastMessageMs);
    fill(about, session.channel === "web" ? "" : `${session.channel} · `, at);
    anchor.title = `${title.textContent}\n${session.agent} on ${session.channel}`;
    fill(state, stateOf(session));
    element.classList.toggle("unread", isUnread(session));
  }

  return { element, show };
}

/** Return the most important state of a session, as a shape; null if there is none. */
function stateOf(session) {
  if (session.requests) return stateMark("asks", "needs you");
  if (pauseOf(session)) return stateMark("waits", pauseOf(session));
  if (session.state !== "idle") return stateMark({ running: "works", scheduled: "waits" }[session.state] ?? session.state, STATES[session.state]);
  return isUnread(session) ? stateMark("unread", "unread") : null;
}

/** The last message of each session that this browser has shown, as its time, by the session's key; under "", of all others. */
const read = stored();

/** Return what was read; nothing if the browser stores nothing, which the login says. */
function stored() {
  try {
    return JSON.parse(localStorage.getItem(READ)) ?? { "": Date.now() };
  } catch {
    return { "": Date.now() };
  }
}

function isUnread({ key, lastMessageMs }) {
  return lastMessageMs > (read[key] ?? read[""]);
}

/** Note that a session has been read: it is in view, and its agent has answered. */
function setRead({ key, lastMessageMs }) {
  read[key] = lastMessageMs;
  const oldest = Object.keys(read).filter(Boolean).sort((one, other) => read[one] - read[other]).slice(0, -MAX_READ);
  for (const each of oldest) {
    read[""] = Math.max(read[""], read[each]);
    delete read[each];
  }
  localStorage.setItem(READ, JSON.stringify(read));
}
