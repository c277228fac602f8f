// Any session: to read, to look after, and to write in as an operator.

import { aboutSession } from "./about.js";
import { askList } from "./asks.js";
import { conversationFrame } from "./conversation.js";
import { ago } from "./dom.js";
import { item } from "./messages.js";
import { sessionWriting } from "./session_writing.js";
import { terminalToggle } from "./terminal_toggle.js";

/** How many items are read at once, and of a turn that has ended. */
const PAGE = 200, OF_TURN = 60;

export function sessionView(link, sessionKey, asks) {
  const waiting = askList(link, asks, { fits: (ask) => ask.sessionKey === key });
  const writing = sessionWriting(link, sessionKey, (message) => frame.grown(() => show([message], (made) => made)));
  const about = aboutSession(link, sessionKey);
  const frame = conversationFrame(sessionKey, {
    stop: () => link.call("sessions.stop", { sessionKey: key }),
    mayStop: () => link.scopes.includes("write"),
    panel: about.element,
    below: [waiting.element, writing.element],
  });
  const terminal = terminalToggle(link, sessionKey, frame.element);
  frame.about.after(terminal.element);
  const known = new Set();
  let key = null, agent = "agent";
  let isWorking = false;
  let goesOn = null;  // what is told of the turn that runs before it is known which session this is

  async function connected() {
    frame.complain("");
    writing.connected();
    try {
      key = (await link.call("sessions.subscribe", { sessionKey })).sessionKey;
      waiting.look();
      await look();
      if (goesOn?.sessionKey === key && isWorking) frame.showLive(goesOn, agent);
      goesOn = null;
    } catch (error) {
      frame.complain(error.message);
    }
  }

  async function look(over = "", limit = PAGE) {
    const [history, facts] = await Promise.all([
      link.call("chat.history", { sessionKey: key, limit }).catch(() => null),
      link.call("sessions.show", { sessionKey: key }),
    ]);
    agent = facts.agent;
    frame.title.textContent = facts.label ?? facts.title ?? key;
    frame.about.textContent = `${facts.channel} · ${facts.agent} · last message ${ago(facts.lastMessageMs)}${facts.waiting ? ` · ${facts.waiting} waiting` : ""}`;
    about.show(facts);
    isWorking = facts.state !== "idle";
    frame.grown(() => {
      if (history) bring(history);
      frame.doing.over(isWorking ? over : null);
      frame.running(isWorking);
    });
  }

  /** Show the newest of a record; if nothing of it is known, it is another conversation. */
  function bring({ items, before }) {
    if (![...keyed(items)].some(([name]) => known.has(name))) {
      if (known.size) frame.clear();
      known.clear();
      offer(before);
    }
    show(items, (made, { role, text, turn }) => role === "agent" ? frame.arrived(made, text, turn) : made);
  }

  function offer(before) {
    frame.offerEarlier(before ? async () => {
      const older = await link.call("chat.history", { sessionKey: key, limit: PAGE, before });
      frame.above(() => show(older.items, (made) => made));
      offer(older.before);
    } : null);
  }

  /** Show what is recorded and not shown yet, as elements that `become` returns. */
  function show(items, become) {
    frame.doing.recorded(items);
    for (const [name, recorded] of keyed(items)) {
      if (known.has(name) || recorded.role === "tool" || recorded.role === "plan") continue;
      known.add(name);
      const made = item(recorded, agent);
      made.dataset.at = recorded.at;
      if (become(made, recorded) === made) frame.put(made, recorded.at);
    }
  }

  function told({ event, payload }) {
    if (!key && event === "session.live") goesOn = payload;
    if (!key || payload?.sessionKey !== key) return;
    if (event === "session.live") frame.showLive(payload, agent);
    if (event === "session.outcome") look(payload.turn ?? "", OF_TURN).catch(() => {});  // once it is back, it looks again
  }

  function close() {
    waiting.close();
    terminal.close();
    link.call("sessions.unsubscribe", { sessionKey }).catch(() => {});
  }

  return { element: frame.element, connected, told, close };
}

/** Yield each item of a record with a name for it: several of one moment are told apart. */
function* keyed(items) {
  const counts = {};
  for (const recorded of items) {
    const name = `${recorded.role} ${recorded.at}`;
    counts[name] = (counts[name] ?? 0) + 1;
    yield [`${name} ${counts[name]}`, recorded];
  }
}
