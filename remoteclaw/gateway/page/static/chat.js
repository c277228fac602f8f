// One's own chat with the agent.

import { aboutSession } from "./about.js";
import { body, choices, headline } from "./cards.js";
import { composer } from "./composer.js";
import { conversationFrame } from "./conversation.js";
import { el, fill, heard, id, rendered, stamp } from "./dom.js";
import { owns } from "./session_keys.js";
import { marks } from "./marks.js";
import { download, took, written } from "./messages.js";
import { terminalToggle } from "./terminal_toggle.js";

const PERSON = "remoteclaw.person";

export function chatView(link, asks, conversation = null) {
  let nowOpen;
  const isOpen = new Promise((resolve) => { nowOpen = resolve; });
  const writing = composer({
    send: (message) => link.call("web.send", { conversation, ...message }),
    session: async () => { await isOpen; return here.sessionKey; },
    draft: `chat ${conversation ?? ""}`,
  });
  const panel = el("div", { class: "panel" });  // filled as soon as it is known whose chat this is
  const frame = conversationFrame("Chat", { stop: () => link.call("sessions.stop", { sessionKey: here.sessionKey }), panel, below: writing.element });
  const hint = el("p", { class: "empty", text: "Write to your agent: a question, or a task. Files are attached, dropped here or pasted." });
  frame.messages.after(hint);
  const known = new Map();  // the element of each message, by its id
  const marked = new Map();  // what people have marked each with, by its id
  const cards = new Map();  // the message that shows a request, by the request's id
  const reacted = new Map();  // the reactions to each message, which may be shown later, by who has reacted
  const closed = new Set();  // the requests that are answered
  let early = null;  // while the chat is opened: what is told before it is known how to read it
  let goesOn = null;  // what was told meanwhile of the turn that runs
  let here = null;
  let last = null;  // the last event that is known
  let first = null;  // the event with which begins what is shown
  let isNews = false;  // whether what is told happens now
  let terminal = null;
  let answered = null;  // the turn whose answer came last

  async function connected() {
    const opening = early = [];
    let opened;
    try {
      opened = await link.call("web.open", { conversation, after: last });
    } catch (error) {
      if (opening !== early) return;
      const isReader = error.code === "FORBIDDEN" && !link.scopes.includes("write");
      frame.complain(isReader ? "This login has the scope read: it can read the conversations of the list, and write in none." : error.message);
      if (error.code === "FORBIDDEN") writing.element.hidden = hint.hidden = true;
      return;
    }
    if (opening !== early) return;  // it was opened once more
    if (isAnother(opened.person)) return location.reload();
    early = null;
    frame.complain("");
    const isFirst = !here;
    here = opened;
    owns(here.sessionKey);
    frame.title.textContent = `Chat with ${here.agent}`;
    if (!panel.children.length) {
      terminal = terminalToggle(link, here.sessionKey, frame.element);
      panel.append(terminal.element, aboutSession(link, here.sessionKey).element);
    }
    frame.grown(() => {
      if (here.isAfresh) forget();
      // Of an opening before, and of what happens now, some may have come first.
      opening.sort((one, other) => isLater(one.id, other.id) - isLater(other.id, one.id)).forEach(take);
    });
    isNews = true;
    frame.running(here.state !== "idle");
    if (here.state !== "idle" && goesOn?.sessionKey === here.sessionKey) frame.showLive(goesOn, here.agent);
    goesOn = null;
    nowOpen();
    look(here.state === "idle" ? null : "", 200);
    if (isFirst) writing.focus();
    writing.again();
  }

  /** Begin with the newest messages: nothing is known yet, or too much has happened. */
  function forget() {
    frame.clear();
    for (const each of [known, marked, cards, reacted, closed]) each.clear();
    first = last = null;
    isNews = false;
    frame.offerEarlier(here.hasEarlier ? bringEarlier : null);
  }

  async function bringEarlier() {
    const found = await link.call("web.history", { conversation, before: first });
    const wasNews = isNews;
    isNews = false;
    frame.above(() => found.events.forEach(put));
    isNews = wasNews;
    first = found.events[0]?.id ?? first;
    frame.offerEarlier(found.hasEarlier ? bringEarlier : null);
    await look("", 200);
  }

  function told({ event, payload }) {
    if (event === "web.event") return payload.conversation === conversation && happened(payload);
    if (early && event === "session.live") goesOn = payload;
    if (!here || payload?.sessionKey !== here.sessionKey) return;
    if (event === "session.live") return frame.showLive(payload, here.agent);
    if (event === "session.outcome") {
      frame.ended(payload.turn, Boolean(payload.reply) && payload.turn !== answered);
      look(payload.turn ?? "", 60);
    }
  }

  /** Show what tools have done; then none runs any more of a turn that is over, or of all: null. */
  async function look(over, limit = 200) {
    const history = await link.call("chat.history", { sessionKey: here.sessionKey, limit }).catch(() => null);
    const since = Number((first ?? "0").split("-")[0]);
    frame.grown(() => {
      if (history) frame.doing.recorded(history.items.filter((item) => (item.sinceMs ?? item.at) >= since));
      frame.doing.over(over);
    });
  }

  function happened(event) {
    if (early) early.push(event);
    else frame.grown(() => take(event));
  }

  function take(event) {
    if (last && !isLater(event.id, last)) return;  // a second tab, a second connection
    last = event.id;
    first ??= event.id;
    put(event);
  }

  function put(event) {
    if (event.kind === "message") add(event);
    else if (event.kind === "deletion") known.get(event.message)?.remove();
    else if (event.kind === "reaction") react(event);
  }

  function add(event) {
    const isOwn = event.from === here.person, isEarlier = event.id !== last;
    if (event.card && !event.card.choices.length) {
      closed.add(event.card.id);
      const shown = cards.get(event.card.id);
      if (shown?.contains(document.activeElement)) writing.focus();  // who has answered by keyboard goes on here
      shown?.querySelector(".choices")?.remove();
      if (shown) return fill(shown.querySelector(".text"), rendered(event.html));
    }
    const made = el("li", { class: ["message", isOwn ? "own" : "agent", event.isError && "error"].filter(Boolean).join(" "), "data-id": event.id, "data-at": event.at },
      el("div", { class: "by" },
        el("h2", { class: "who", text: isOwn ? "You" : here.agent }),
        event.origin ? el("span", { class: "origin", text: event.origin }) : null,
        stamp(event.at)),
      event.replyTo ? quote(event.replyTo) : null,
      event.html || event.text ? written(event) : null,
      (event.files ?? []).map((file) => download(event.sid, file)),
      event.card?.choices.length && !closed.has(event.card.id) ? cardOf(event.card) : null,
      event.usage ? took(event.usage) : null,
      marksOf(event, isOwn));
    if (event.turn && !isEarlier) answered = event.turn;
    const shown = event.turn && !isEarlier ? frame.arrived(made, event.text, event.turn) : made;
    if (shown === made) frame.put(made, event.at + Math.min(parts(event.id)[1], 1023) / 1024);  // in one millisecond, too
    if (event.card) cards.set(event.card.id, shown);
    if (event.card) show(event.card.id);
    known.set(event.id, shown);
    for (const each of reacted.get(event.id)?.values() ?? []) react(each);
    // Once, and when it is whole: what is read aloud while it grows is begun again and again.
    if (isNews && !isOwn) heard.textContent = `${here.agent}: ${shown.querySelector(".text")?.textContent ?? ""}`;
  }

  function asked() {
    frame.grown(() => asks.list.forEach((ask) => show(ask.id)));
  }

  /** Show a request by its kind: it and its message come apart, in either order. */
  function show(askId) {
    const ask = asks.list.find((each) => each.id === askId), shown = cards.get(askId), buttons = shown?.querySelector(".choices");
    if (!ask || !buttons || shown.dataset.kind) return;  // words that a person has begun to write stay
    shown.dataset.kind = ask.kind;
    if (ask.kind === "plan" || ask.kind === "question") {
      fill(shown.querySelector(".text"), el("p", {}, el("strong", { text: headline(ask) })), body(ask));
    }
    buttons.replaceWith(choices(ask, (verdict, words) => answer(askId, verdict, words)));
  }

  /** Return the choices of a request of which nothing else is known here yet. */
  function cardOf(card) {
    const kind = card.choices.some(([verdict]) => verdict === "once") ? "tool" : "question";
    return choices({ kind, what: "", offered: card.choices }, (verdict, words) => answer(card.id, verdict, words));
  }

  function textOf(messageId) {
    return known.get(messageId)?.querySelector(".text")?.textContent.slice(0, 120);
  }

  function quote(quotedId) {
    const quoted = textOf(quotedId);
    return quoted ? el("blockquote", { class: "quote", text: quoted }) : null;
  }

  function react(event) {
    const all = reacted.get(event.message) ?? new Map();
    reacted.set(event.message, all);
    if (all.has(event.from) && isLater(all.get(event.from).id, event.id)) return;
    all.set(event.from, event);
    marked.get(event.message)?.take(event);
  }

  function marksOf({ id: messageId }, isOwn) {
    const made = marks(isOwn ? {} : {
      reply: () => writing.reply({ id: messageId, text: textOf(messageId) }),
      react: (emoji) => {
        const reaction = made.of(here.person) === emoji ? "" : emoji;  // the same one again takes it back
        link.call("web.send", { conversation, messageId: id(), replyTo: messageId, reaction }).catch((error) => frame.complain(error.message));
      },
    });
    marked.set(messageId, made);
    return made.element;
  }

  function answer(request, verdict, words = "") {
    return link.call("web.send", { conversation, messageId: id(), answer: { request, verdict, words } });
  }

  function close() {
    asks.removeEventListener("change", asked);
    writing.close();
    terminal?.close();
    if (here) link.call("sessions.unsubscribe", { sessionKey: here.sessionKey }).catch(() => {});
  }

  asks.addEventListener("change", asked);
  return { element: frame.element, connected, told, close };
}

/** Whether another person has logged in since, in whatever tab: then drafts and unsent words are none of theirs. */
function isAnother(person) {
  const before = sessionStorage.getItem(PERSON);
  if (before && before !== person) sessionStorage.clear();
  sessionStorage.setItem(PERSON, person);
  return Boolean(before) && before !== person;
}

/** Return when an event was, and which one of its millisecond it is. */
function parts(eventId) {
  return eventId.split("-").map(Number);
}

function isLater(one, other) {
  const [at, number] = parts(one), [thenAt, thenNumber] = parts(other);
  return at > thenAt || (at === thenAt && number > thenNumber);
}
