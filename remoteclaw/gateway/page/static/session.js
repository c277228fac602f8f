// Any session: to read, to look after, and to write in as an operator.

import { askList } from "./asks.js";
import { conversationFrame } from "./conversation.js";
import { ago, fill } from "./dom.js";
import { item } from "./messages.js";
import { sessionPanel } from "./session_panel.js";
import { sessionWriting } from "./session_writing.js";

export function sessionView(link, sessionKey, asks) {
  const waiting = askList(link, asks, { fits: (ask) => ask.sessionKey === key });
  const writing = sessionWriting(link, sessionKey);
  const panel = sessionPanel(link, sessionKey);
  const frame = conversationFrame(sessionKey, {
    stop: () => link.call("sessions.stop", { sessionKey: key }),
    mayStop: () => link.scopes.includes("write"),
    panel: panel.element,
    below: [waiting.element, writing.element],
  });
  let key = null;

  async function connected() {
    frame.complain("");
    writing.connected();
    panel.connected();
    try {
      key = (await link.call("sessions.subscribe", { sessionKey })).sessionKey;
      waiting.look();
      await look();
    } catch (error) {
      frame.complain(error.message);
    }
  }

  async function look() {
    const [history, facts] = await Promise.all([
      link.call("chat.history", { sessionKey: key, limit: 200 }).catch(() => ({ items: [] })),
      link.call("sessions.show", { sessionKey: key }),
    ]);
    frame.title.textContent = facts.label ?? facts.title ?? key;
    frame.about.textContent = `${facts.channel} · ${facts.agent} · last message ${ago(facts.lastMessageMs)}${facts.waiting ? ` · ${facts.waiting} waiting` : ""}`;
    frame.running(facts.state !== "idle");
    frame.grown(() => fill(frame.messages, history.items.map(item)));
  }

  function told({ event, payload }) {
    if (!key || payload?.sessionKey !== key) return;
    if (event === "session.live") frame.showLive(payload);
    if (event === "session.outcome") look();
  }

  function close() {
    waiting.close();
    link.call("sessions.unsubscribe", { sessionKey }).catch(() => {});
  }

  return { element: frame.element, connected, told, close };
}
