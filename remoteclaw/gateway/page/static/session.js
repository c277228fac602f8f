// The view of any session, in which operators can also write.

import { aboutSession } from "./about.js";
import { requestList } from "./requests.js";
import { conversationFrame, isAtWork } from "./conversation.js";
import { ago } from "./dom.js";
import { item, keyed } from "./messages.js";
import { nameOf } from "./session_keys.js";
import { sessionComposer } from "./session_composer.js";
import { terminalToggle } from "./terminal_toggle.js";

/** How many items of the record are loaded at once, and after the end of a turn. */
const PAGE = 200, TURN_PAGE = 60;

export function sessionView(link, sessionKey, requests) {
  const waiting = requestList(link, requests, { fits: (request) => request.sessionKey === key });
  const writing = sessionComposer(link, sessionKey, (message) => frame.keepAtEnd(() => show([message], (made) => made)));
  const about = aboutSession(link, sessionKey);
  const frame = conversationFrame(nameOf(sessionKey), {
    stop: () => link.call("sessions.stop", { sessionKey: key }),
    retry: () => link.call("sessions.retry", { sessionKey: key }),
    isAsking: () => requests.list.some((request) => request.sessionKey === key),
    mayStop: () => link.scopes.includes("write"),
    actions: about.element,
    below: [waiting.element, writing.element],
  });
  frame.element.addEventListener("labelled", ({ detail }) => detail && frame.setTitle(detail));
  const terminal = terminalToggle(link, sessionKey, frame.element);
  about.element.before(terminal.element);
  const shown = new Set();  // the names of the shown items
  let key = null, agent = "agent";
  let isWorking = false;
  let liveEvent = null;  // the last `session.live` that arrived before `key` was known

  async function onConnected() {
    frame.showProblem("");
    writing.onConnected();
    try {
      key = (await link.call("sessions.subscribe", { sessionKey })).sessionKey;
      waiting.refresh();
      await refresh();
      if (liveEvent?.sessionKey === key && isWorking) frame.showLive(liveEvent, agent);
      liveEvent = null;
    } catch (error) {
      frame.showProblem(error.message);
    }
  }

  /** Load the newest items; `endedTurn` is a turn whose tools have ended. */
  async function refresh(endedTurn = "", limit = PAGE) {
    const [history, facts] = await Promise.all([
      link.call("sessions.history", { sessionKey: key, limit }).catch(() => null),
      link.call("sessions.show", { sessionKey: key }),
    ]);
    agent = facts.agent;
    frame.setTitle(facts.label ?? facts.title ?? nameOf(key));
    frame.about.textContent = [facts.channel, facts.agent, facts.model, `last message ${ago(facts.lastMessageMs)}`, facts.waiting && `${facts.waiting} waiting`].filter(Boolean).join(" · ");
    about.show(facts);
    isWorking = isAtWork(facts.state);
    frame.keepAtEnd(() => {
      if (history) showNewest(history);
      frame.activity.end(isWorking ? endedTurn : null);
      frame.setRunning(isWorking);
      frame.showPause(facts);
    });
  }

  /** Show the newest items. If none of them is shown already, they belong to another conversation. */
  function showNewest({ items, before }) {
    if (![...keyed(items)].some(([name]) => shown.has(name))) {
      if (shown.size) frame.clear();
      shown.clear();
      offerEarlier(before);
    }
    show(items, (made, { role, text, turn }) => role === "agent" ? frame.replaceLive(made, text, turn) : made);
  }

  function offerEarlier(before) {
    frame.offerEarlier(before ? async () => {
      const older = await link.call("sessions.history", { sessionKey: key, limit: PAGE, before });
      frame.insertAbove(() => show(older.items, (made) => made));
      offerEarlier(older.before);
    } : null);
  }

  /** Show the items that are not shown yet; `place(made, recorded)` returns `made` if it has to be inserted. */
  function show(items, place) {
    frame.activity.showRecorded(items);
    for (const [name, recorded] of keyed(items)) {
      if (shown.has(name) || recorded.role === "tool" || recorded.role === "plan") continue;
      shown.add(name);
      const made = item(recorded, agent);
      made.dataset.at = recorded.at;
      if (place(made, recorded) === made) frame.insert(made, recorded.at);
    }
  }

  function onEvent({ event, payload }) {
    if (!key && event === "session.live") liveEvent = payload;
    if (!key || payload?.sessionKey !== key) return;
    if (event === "session.live") frame.showLive(payload, agent);
    if (event === "session.postponed") frame.showPause(payload);
    if (event === "session.outcome") refresh(payload.turn ?? "", TURN_PAGE).catch(() => {});  // onConnected() refreshes after an outage
  }

  function onRequestsChanged() {
    frame.showRequests(agent);
  }

  function close() {
    requests.removeEventListener("change", onRequestsChanged);
    waiting.close();
    terminal.close();
    link.call("sessions.unsubscribe", { sessionKey }).catch(() => {});
  }

  requests.addEventListener("change", onRequestsChanged);
  return { element: frame.element, onConnected, onEvent, close };
}
