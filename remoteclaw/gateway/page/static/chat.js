// The logged-in person's chat with an agent.

import { aboutSession } from "./about.js";
import { body, choices, headline } from "./request_card.js";
import { composer } from "./composer.js";
import { conversationFrame, isAtWork } from "./conversation.js";
import { el, fill, liveRegion, newId, rendered } from "./dom.js";
import { fileStrip } from "./files.js";
import { icon } from "./icons.js";
import { addressOf } from "./session_keys.js";
import { messageMarks } from "./reactions.js";
import { byline, classesOf, failure, item, keyed, messageText, usageLine } from "./messages.js";
import { terminalToggle } from "./terminal_toggle.js";
import { welcome } from "./welcome.js";

/** How many items of the record are loaded at once. */
const RECORD_PAGE = 200;
/** A message that waits longer than this for its turn is marked. */
const WAITS_MS = 1000;
/** The title of a conversation without messages, and how much of the first message is the title of any other. */
const NEW = "New conversation", MAX_NAME_CHARS = 80;
/** The key in the session storage of the person who uses this tab. */
const PERSON = "remoteclaw.person";

export function chatView(link, requests, conversation = null) {
  let resolveOpened;
  const opened = new Promise((resolve) => { resolveOpened = resolve; });
  const writing = composer({
    send: async (message) => {
      frame.toEnd();
      const sent = await link.call("chat.send", { sessionKey: chat.sessionKey, ...message });
      if (sent.reply) frame.showProblem(sent.reply);
      if (sent.opens) location.hash = addressOf(sent.opens);
    },
    session: async () => { await opened; return chat.sessionKey; },
    draft: `chat ${conversation ?? ""}`,
    stop: () => link.call("sessions.stop", { sessionKey: chat.sessionKey }).catch((error) => frame.showProblem(error.message)),
    suggest,
  });
  const panel = el("div", { class: "panel" });  // filled once the session is known
  const frame = conversationFrame(NEW, {
    stop: () => link.call("sessions.stop", { sessionKey: chat.sessionKey }),
    retry: () => link.call("sessions.retry", { sessionKey: chat.sessionKey }),
    isAsking: () => requests.list.some((request) => request.sessionKey === chat.sessionKey),
    onRunning: writing.setRunning,
    actions: panel,
    below: writing.element,
  });
  frame.element.addEventListener("labelled", ({ detail }) => showName(detail || chat.name));
  frame.element.classList.add("own-chat");  // the person's own messages need no name
  const hint = el("div", { class: "empty" });
  frame.messages.after(hint);
  const elements = new Map();  // the element of each message, by its id
  const bars = new Map();  // the reaction bar of each message, by its id
  const cards = new Map();  // the message that shows a request, by the request's id
  const reactions = new Map();  // the reactions to each message, also one not shown yet, by their author
  const closed = new Set();  // the requests that are answered
  const waits = new Map();  // the mark of each message that waits for its turn, by its id
  const ofTerminals = new Set();  // the names of the messages of the session's terminals that are shown
  let pending = null;  // the events that arrive while the chat is being opened
  let liveEvent = null;  // the last `session.live` that arrived in that time
  let chat = null;  // the result of `chat.open`
  let last = null;  // the id of the last known event
  let first = null;  // the id of the first shown event
  let hasEarlier = false;  // whether the chat has events before that one
  let isCurrent = false;  // whether events are happening now, instead of being loaded
  let terminal = null;
  let answered = null;  // the turn of the last answer
  let liveTurn = null;  // the last turn with live text
  let waitingTimer = null;
  let named = "";  // the conversation's name

  async function onConnected() {
    const opening = pending = [];
    let found;
    try {
      found = await link.call("chat.open", { conversation, after: last });
    } catch (error) {
      if (opening !== pending) return;
      const isReader = error.code === "FORBIDDEN" && !link.scopes.includes("write");
      frame.showProblem(isReader ? "This login has the scope read: it can read the conversations of the list, and write in none." : error.message);
      if (error.code === "FORBIDDEN") writing.element.hidden = hint.hidden = true;
      return;
    }
    if (opening !== pending) return;  // the chat was opened again
    if (isNewPerson(found.person)) return location.reload();
    pending = null;
    frame.showProblem("");
    const isFirst = !chat;
    chat = found;
    showName(chat.name);
    frame.about.textContent = [chat.agent, chat.model, chat.workspace].filter(Boolean).join(" · ");
    frame.about.title = chat.workspace;
    if (!hint.firstChild) fill(hint, welcome(chat, writing.suggestText));
    if (!panel.children.length) {
      terminal = terminalToggle(link, chat.sessionKey, frame.element);
      panel.append(terminal.element, aboutSession(link, chat.sessionKey).element);
    }
    frame.keepAtEnd(() => {
      if (chat.isAfresh) reset();
      // Events of an earlier opening, and new events, may have arrived out of order.
      opening.filter((each) => each.conversation === chat.conversation).sort((one, other) => isLater(one.id, other.id) - isLater(other.id, one.id)).forEach(take);
    });
    isCurrent = true;
    frame.setRunning(isAtWork(chat.state));
    frame.showPause(chat);
    if (isAtWork(chat.state) && liveEvent?.sessionKey === chat.sessionKey) frame.showLive(liveEvent, chat.agent);
    liveEvent = null;
    resolveOpened();
    refreshRecorded(isAtWork(chat.state) ? "" : null, { isWhole: true });
    refreshWaiting();
    if (isFirst) writing.focus();
    writing.flush();
  }

  /** Show the name of the conversation: its label or title, or how its first message begins. */
  function showName(name) {
    named = name ?? named;
    frame.setTitle(named || NEW);
  }

  /** Return what completes a command or the path of a file. */
  async function suggest(sign, letters) {
    if (!chat) return [];
    if (sign === "/") return chat.commands.filter(([name]) => name.startsWith(letters.toLowerCase())).map(([name, about]) => ({ value: `/${name}`, about }));
    const { paths } = await link.call("chat.files", { sessionKey: chat.sessionKey, like: letters });
    return paths.map((path) => ({ value: `@${path}`, about: "" }));
  }

  /** Remove all messages: the events that follow are the newest ones. */
  function reset() {
    frame.clear();
    for (const each of [elements, bars, cards, reactions, closed, waits, ofTerminals]) each.clear();
    first = last = null;
    isCurrent = false;
    offerEarlier(chat.hasEarlier);
  }

  async function loadEarlier() {
    const found = await link.call("chat.history", { sessionKey: chat.sessionKey, before: first });
    const wasCurrent = isCurrent;
    isCurrent = false;
    frame.insertAbove(() => found.events.forEach(show));
    isCurrent = wasCurrent;
    first = found.events[0]?.id ?? first;
    offerEarlier(found.hasEarlier);
    await refreshRecorded("", { isWhole: true });
  }

  function offerEarlier(isThere) {
    hasEarlier = isThere;
    frame.offerEarlier(hasEarlier ? loadEarlier : null);
  }

  function onEvent({ event, payload }) {
    if (event === "chat.event") return (pending || payload.conversation === chat.conversation) && onChatEvent(payload);
    if (pending && event === "session.live") liveEvent = payload;
    if (!chat || payload?.sessionKey !== chat.sessionKey) return;
    if (event === "session.live") {
      if (payload.turn !== liveTurn) refreshWaiting();
      liveTurn = payload.turn;
      return frame.showLive(payload, chat.agent);
    }
    if (event === "session.postponed") return frame.showPause(payload);
    if (event === "session.outcome") {
      frame.endTurn(payload.turn, Boolean(payload.reply) && payload.turn !== answered);
      refreshRecorded(payload.turn ?? "");
      refreshWaiting();
    }
  }

  /** Mark the messages that wait for their turn. */
  async function refreshWaiting() {
    const found = await link.call("chat.waiting", { sessionKey: chat.sessionKey }).catch(() => null);
    if (!found) return;
    const ids = new Set(found.messages);
    for (const [id, mark] of waits) {
      if (!ids.has(id)) { mark.remove(); waits.delete(id); }
    }
    for (const id of ids) {
      if (waits.has(id) || !elements.has(id)) continue;
      waits.set(id, el("span", { class: "origin", text: "waits" }));
      elements.get(id).querySelector(".marks").append(waits.get(id));
    }
  }

  /**
   * Show what the record has besides the chat: tool calls, and the messages of terminals. Show no
   * tools of the turn `endedTurn` as running; null stands for all turns. The newest items are
   * enough, except for a part of the chat that was not shown before: then it `isWhole`.
   */
  async function refreshRecorded(endedTurn, { isWhole = false } = {}) {
    const since = hasEarlier ? Number(first.split("-")[0]) : 0;
    let items = [], before = null;
    do {
      const page = await link.call("sessions.history", { sessionKey: chat.sessionKey, limit: RECORD_PAGE, ...(before && { before }) }).catch(() => null);
      items = [...page?.items ?? [], ...items];
      before = page?.before;
    } while (isWhole && before > since);
    items = items.filter((each) => (each.sinceMs ?? each.at) >= since);
    frame.keepAtEnd(() => {
      frame.activity.showRecorded(items);
      for (const [name, recorded] of keyed(items)) if (recorded.isTerminal) showOfTerminal(name, recorded);
      frame.activity.end(endedTurn);
    });
  }

  function showOfTerminal(name, recorded) {
    if (recorded.role === "tool" || ofTerminals.has(name)) return;
    ofTerminals.add(name);
    frame.insert(item(recorded, chat.agent), recorded.at);
  }

  function onChatEvent(event) {
    if (pending) pending.push(event);
    else frame.keepAtEnd(() => take(event));
  }

  function take(event) {
    if (last && !isLater(event.id, last)) return;  // shown already, before a reconnect
    last = event.id;
    first ??= event.id;
    show(event);
  }

  function show(event) {
    if (event.kind === "message") addMessage(event);
    else if (event.kind === "deletion") elements.get(event.message)?.remove();
    else if (event.kind === "reaction") addReaction(event);
  }

  function addMessage(event) {
    const isOwn = event.from === chat.person, isEarlier = event.id !== last;
    if (event.card && !event.card.choices.length) {
      closed.add(event.card.id);
      const shown = cards.get(event.card.id);
      if (shown?.contains(document.activeElement)) writing.focus();  // the focused button is removed
      shown?.querySelector(".choices")?.remove();
      if (shown) return closeCard(shown, event);
    }
    const isClosed = event.card && !event.card.choices.length;
    const made = el("li", { class: classesOf({ ...event, isOwn }, event.text ?? ""), "data-id": event.id, "data-at": event.at, tabindex: "-1" },
      byline(isOwn ? "You" : event.isNotice || event.isError ? "RemoteClaw" : chat.agent, event.at, event.origin),
      event.replyTo ? quote(event.replyTo) : null,
      event.isError ? failure(event) : isClosed ? answeredRequest(event) : event.card ? textOfCard(event) : event.html || event.text ? messageText(event) : null,
      event.files?.length ? fileStrip(event.sid, event.files) : null,
      event.card?.choices.length && !closed.has(event.card.id) ? cardOf(event.card) : null,
      marksOf(event, isOwn));
    if (isClosed) made.classList.add("answered");
    if (isOwn && event.text && !event.text.startsWith("/")) showName(named || event.text.trim().split("\n")[0].slice(0, MAX_NAME_CHARS));
    if (event.turn && !isEarlier) answered = event.turn;
    const shown = event.turn && !isEarlier ? frame.replaceLive(made, event.text, event.turn) : made;
    if (shown === made) frame.insert(made, event.at + Math.min(parts(event.id)[1], 1023) / 1024);  // also orders events of one millisecond
    if (event.card) cards.set(event.card.id, shown);
    if (event.card) showRequest(event.card.id);
    elements.set(event.id, shown);
    if (isOwn && isCurrent) {
      clearTimeout(waitingTimer);
      waitingTimer = setTimeout(refreshWaiting, WAITS_MS);
    }
    for (const each of reactions.get(event.id)?.values() ?? []) addReaction(each);
    // Only complete answers are read aloud: a screen reader would start live text again with each change.
    if (isCurrent && !isOwn) liveRegion.textContent = `${chat.agent}: ${shown.querySelector(".text")?.textContent ?? ""}`;
  }

  /** Show a request that can't be answered any more as one line, which opens. */
  function closeCard(shown, event) {
    shown.classList.add("answered");
    delete shown.dataset.kind;
    shown.querySelector(".text").replaceWith(answeredRequest(event));
  }

  function onRequestsChanged() {
    frame.keepAtEnd(() => requests.list.forEach((request) => showRequest(request.id)));
    if (chat) frame.showRequests(chat.agent);
  }

  /** Show a request in its message; the two arrive separately, in either order. */
  function showRequest(requestId) {
    const request = requests.list.find((each) => each.id === requestId), shown = cards.get(requestId), buttons = shown?.querySelector(".choices");
    if (!request || !buttons || shown.dataset.kind) return;  // shown already: keeps text that was entered
    shown.dataset.kind = request.kind;
    if (request.kind === "plan" || request.kind === "question") {
      fill(shown.querySelector(".text"), el("p", {}, el("strong", { text: headline(request) })), body(request));
    }
    buttons.replaceWith(choices(request, (verdict, text) => answer(requestId, verdict, text)));
  }

  /** Return the choices of a request whose other fields are not known yet. */
  function cardOf(card) {
    const kind = card.choices.some(([verdict]) => verdict === "once") ? "tool" : "question";
    return choices({ kind, what: "", offered: card.choices }, (verdict, text) => answer(card.id, verdict, text));
  }

  function textOf(messageId) {
    return elements.get(messageId)?.querySelector(".text")?.innerText.replace(/\s+/g, " ").slice(0, 120);
  }

  function quote(quotedId) {
    const quoted = textOf(quotedId);
    return quoted ? el("blockquote", { class: "quote", text: quoted }) : null;
  }

  function addReaction(event) {
    const byAuthor = reactions.get(event.message) ?? new Map();
    reactions.set(event.message, byAuthor);
    if (byAuthor.has(event.from) && isLater(byAuthor.get(event.from).id, event.id)) return;
    byAuthor.set(event.from, event);
    bars.get(event.message)?.set(event);
  }

  function marksOf({ id: messageId, at, text, card, usage, isNotice, isError }, isOwn) {
    const bar = messageMarks(isOwn || card || isNotice || isError ? { at, text: card || isNotice ? "" : text } : {
      at, text, usage: usage && usageLine(usage),
      reply: () => writing.setReply({ id: messageId, text: textOf(messageId) }),
      react: (emoji) => {
        const reaction = bar.of(chat.person) === emoji ? "" : emoji;  // the same one again removes it
        link.call("chat.send", { sessionKey: chat.sessionKey, messageId: newId(), replyTo: messageId, reaction }).catch((error) => frame.showProblem(error.message));
      },
    });
    bars.set(messageId, bar);
    return bar.element;
  }

  function answer(request, verdict, words = "") {
    return link.call("chat.send", { sessionKey: chat.sessionKey, messageId: newId(), answer: { request, verdict, words } });
  }

  function close() {
    clearTimeout(waitingTimer);
    requests.removeEventListener("change", onRequestsChanged);
    writing.close();
    terminal?.close();
    if (chat) link.call("sessions.unsubscribe", { sessionKey: chat.sessionKey }).catch(() => {});
  }

  requests.addEventListener("change", onRequestsChanged);
  return { element: frame.element, onConnected, onEvent, close, commands: () => chat?.commands ?? [], suggest: writing.suggestText };
}

/** Return an answered request: its outcome as a line, which opens the request. */
function answeredRequest(event) {
  const whole = textOfCard(event), parts = [...whole.children], became = parts.pop();
  if (!parts.length) return whole;
  const what = whole.querySelector("pre")?.textContent.split("\n")[0];
  return el("div", { class: "text" }, el("details", {},
    el("summary", {}, icon("right"), el("span", {}, ...became.childNodes), what ? el("code", { text: what }) : null), parts));
}

/** Return the text of a request, whose code has no frame: all of it is shown. */
function textOfCard({ html, text }) {
  return html ? rendered(html) : messageText({ text });
}

/** Whether another person has logged in since. Then the drafts of this tab are removed. */
function isNewPerson(person) {
  const before = sessionStorage.getItem(PERSON);
  if (before && before !== person) sessionStorage.clear();
  sessionStorage.setItem(PERSON, person);
  return Boolean(before) && before !== person;
}

/** Return the time of an event, and its number within that millisecond. */
function parts(eventId) {
  return eventId.split("-").map(Number);
}

function isLater(one, other) {
  const [at, number] = parts(one), [thenAt, thenNumber] = parts(other);
  return at > thenAt || (at === thenAt && number > thenNumber);
}
