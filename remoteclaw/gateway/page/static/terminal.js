// A session's terminal: the agent's own program, seen by all who may read and typed into by one.

import { twice } from "./actions.js";
import { busy, button, el, problemLine, say } from "./dom.js";
import { offered } from "./terminal_clipboard.js";
import { typing } from "./terminal_typing.js";
import { terminalView } from "./terminal_view.js";
import { needsPerson, peopleOf, stateOf } from "./terminal_words.js";

/** How many panes keep their last picture while other places are shown. */
const MAX_KEPT = 8;
/** How often a terminal is asked about of which nothing is told, and one that starts, in milliseconds. */
const LOOK_MS = 5000, STARTS_MS = 1000;
const OPEN_STATES = ["starting", "live"];
const isTouched = matchMedia("(pointer: coarse)").matches;
const panes = new Map();
let looks = null;  // the style sheet, once fetched

/** Return the pane of a session: the same one for as long as the page is open. */
export async function terminalPane(link, sessionKey) {
  await (looks ??= new Promise((done) => document.head.append(
    el("link", { rel: "stylesheet", href: "/page/terminal.css", onload: done, onerror: done }))));
  const pane = panes.get(sessionKey) ?? makePane(link, sessionKey);
  panes.delete(sessionKey);
  panes.set(sessionKey, pane);  // behind those that were used before
  for (const key of panes.keys()) {
    if (panes.size <= MAX_KEPT) break;
    if (!panes.get(key).element.isConnected) panes.delete(key);
  }
  return pane;
}

function makePane(link, sessionKey) {
  let record = null, sid = sessionKey;
  let isKnown = false, isAway = false, isWatched = false, isElsewhere = false;
  let typesAs = null;  // by what name others know that this page types
  let wasTyping = false;  // until the connection was lost
  let timer = null, asked = 0;
  let early = null;  // what is told before it is known of which terminal

  const words = el("p", { class: "tty-state", role: "status" });
  const people = el("p", { class: "tty-people" });
  const title = el("p", { class: "tty-title", dir: "auto" });
  const problem = problemLine(), why = problemLine();
  const clipboard = offered();
  const keyboard = typing({
    send: (method, params) => link.call(method, { sid, ...params }),
    refused: displaced,
    hasSelection: () => view.hasSelection(),
    leave: () => give.focus(),
    typed: () => view.backToNow(),
  });
  const view = terminalView({
    field: keyboard.field,
    fetchRows: (start, count) => link.call("terminals.history", { sid, start, count }),
    sized: (size) => link.call("terminals.resize", { sid, ...size }).catch(displaced),
  });

  const opening = button("Open terminal", () => act([opening], open), { class: "tty-open" });
  const take = button("Take control", () => act([take], () => control({ force: Boolean(record.writer) })));
  const give = button("Give back", () => act([give], giveBack), { title: "Ctrl+Shift+. leads here from the terminal" });
  const interrupt = button("Interrupt (Esc)", () => act([interrupt], () => link.call("terminals.key", { sid, key: "esc" })));
  const park = button("Park", () => act([park], () => link.call("terminals.park", { sid })));
  const ending = el("span", { class: "tty-ending" },
    twice(["End", "Keep it", "End it, whatever it does"], () => act([], () => link.call("terminals.end", { sid }))));
  const text = el("textarea", { rows: "1", dir: "auto", "aria-label": "Message to the program", placeholder: "Write to the program",
    onkeydown: (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); submit(); }
    } });
  const sending = el("button", { type: "submit" }, "Send");
  const composer = el("form", { class: "composer tty-composer", onsubmit: (event) => { event.preventDefault(); submit(); } },
    el("div", { class: "row" }, text, sending));
  const element = el("section", { class: "terminal", "aria-label": "Terminal of this session" },
    el("div", { class: "tty-head" }, words, people, title,
      el("div", { class: "tty-buttons" }, opening, take, give, interrupt, park, ending)),
    el("div", { class: "tty-notes" }, why, problem, clipboard.element),
    view.element, keyboard.bar, composer);

  view.element.addEventListener("mouseup", () => {
    if (typesAs !== null && !view.hasSelection()) keyboard.field.focus({ preventScroll: true });
  });

  // -- what is shown --------------------------------------------------------------------------------

  function show() {
    const isOpen = OPEN_STATES.includes(record?.state), isHere = isOpen && isKnown && !isAway && !isElsewhere;
    const may = (scope) => link.scopes.includes(scope);
    element.dataset.state = isAway ? "away" : record?.state ?? "none";
    element.classList.toggle("needs-you", isHere && needsPerson(record));
    element.classList.toggle("in-control", typesAs !== null);
    write(words, isAway ? "Connection lost: trying again. This is the last picture." : isKnown ? stateOf(record, isElsewhere) : "Looking…");
    write(people, isHere ? peopleOf(record, typesAs !== null) : "");
    write(title, view.state.title || record?.title || "");
    opening.hidden = isOpen || !isKnown || isAway || !may("write");
    opening.classList.toggle("resume", Boolean(record?.resumable));
    write(opening, record?.resumable ? "Resume" : "Open terminal");
    for (const each of [take, interrupt, park, ending]) each.hidden = !isHere || !may("terminal");
    take.hidden ||= typesAs !== null;
    give.hidden = typesAs === null;
    write(take, record?.writer ? `Take control from ${record.writer}` : "Take control");
    composer.hidden = !isHere || !may("write") || (typesAs !== null && !isTouched);
  }

  /** Take how it stands. */
  function took(found) {
    record = found;
    sid = found.sid ?? sid;
    isKnown = true;
    const isAnothers = found.writer && found.writer !== typesAs;
    if (typesAs !== null && (!OPEN_STATES.includes(found.state) || isAnothers)) types(null);
    else show();
  }

  /** Take that this page types from now on, under a name; null: it doesn't. */
  function types(name, { isAsked = false } = {}) {
    const hadFocus = element.contains(document.activeElement), hadKeys = document.activeElement === keyboard.field;
    typesAs = name;
    keyboard.enable(name !== null);
    view.own(name !== null);
    show();
    if (name === null && hadKeys) (take.hidden ? view.scroller : take).focus();
    if (name !== null && (hadFocus || isAsked)) keyboard.field.focus({ preventScroll: true });
  }

  // -- how it stands --------------------------------------------------------------------------------

  /** See the screen from now on. It opens nothing. */
  async function look() {
    const own = ++asked;
    clearTimeout(timer);
    early = [];
    try {
      const found = await link.call("terminals.watch", { sid });
      if (own !== asked) return;
      isWatched = true;
      isElsewhere = isAway = false;
      say(why, "");
      const before = early;
      early = null;
      took(found);
      before.forEach(told);
      if (wasTyping) await control({}).catch(() => {});  // for a moment it is kept for who comes back
      wasTyping = false;
    } catch (error) {
      if (own === asked) await check(error);
    }
  }

  /** Find out how a terminal stands that can't be watched, for this reason: it isn't open, or elsewhere. */
  async function check(refusal = null) {
    const own = asked;
    early = null;
    const found = refusal?.code === "UNAVAILABLE" ? refusal : await link.call("terminals.get", { sid }).catch((error) => error);
    if (own !== asked) return;
    if (found instanceof Error) return absent(found);
    isAway = isWatched = false;
    const isOpen = OPEN_STATES.includes(found.state);
    if (isOpen && !refusal) return look();  // somebody has opened it
    isElsewhere = found.state === "live";
    say(why, isElsewhere ? refusal.message : "");
    took(found);
    again(found.state === "starting" ? STARTS_MS : LOOK_MS, isOpen ? look : check);
    if (!isOpen && view.state.revision === null) {
      const last = await link.call("terminals.screen", { sid }).catch(() => null);
      if (last && own === asked) view.take(last.frame);
    }
  }

  function absent(refusal) {
    if (refusal.code === "UNAVAILABLE") return say(why, isAway ? "" : refusal.message);  // the connection tells when it is back
    isAway = isWatched = isElsewhere = false;
    isKnown = true;
    record = null;
    say(why, refusal.code === "NOT_FOUND" ? "" : refusal.message);
    show();
    again(LOOK_MS, check);
  }

  /** Look again after a while, if a person can see it. */
  function again(ms, what) {
    clearTimeout(timer);
    timer = setTimeout(() => (element.offsetParent && document.visibilityState === "visible" ? what() : again(ms, what)), ms);
  }

  // -- what a person does ---------------------------------------------------------------------------

  async function open() {
    const opened = await link.call("terminals.open", { session: sessionKey, ...view.room() });
    took(opened.terminal);
    if (opened.waits) say(problem, "It opens when the turn before it has ended.");
    await look();
  }

  async function control(more) {
    const found = await link.call("terminals.take", { sid, ...view.room(), ...more });
    types(found.writer, { isAsked: "force" in more });  // how else it stands was told before, or is told
  }

  /** Watch on, without the keyboard. */
  async function giveBack() {
    types(null);
    await link.call("terminals.leave", { sid });
    await look();
  }

  async function submit() {
    const typed = text.value;
    if (!typed.trim()) return;
    await act([sending], async () => {
      const { submitted } = await link.call("terminals.input", { sid, text: typed });
      if (text.value === typed) text.value = "";
      if (!submitted) say(problem, "The terminal has ended: this was sent as a message.");
    });
  }

  function act(buttons, what) {
    return busy(buttons, async () => {
      say(problem, "");
      await what().catch((error) => say(problem, error.message));
    });
  }

  /** Take that what was typed was refused: another one may have the keyboard. */
  function displaced(error) {
    say(problem, error.message);
    if (error.code === "CONFLICT" && typesAs !== null) types(null);
  }

  // -- what is told ---------------------------------------------------------------------------------

  function told(heard) {
    const { event, payload } = heard.detail;
    if (!event?.startsWith("terminal.")) return;
    if (early) return early.push(heard);
    if ((payload.sid ?? payload.record?.sid) !== sid) return;
    if (event === "terminal.screen") {
      if (!view.take(payload)) look();  // a gap: all is sent once more
      if (title.textContent !== payload.title) show();
    } else if (event === "terminal.bell") {
      dispatchEvent(new Event("terminal-bell"));
    } else if (event === "terminal.clipboard") {
      clipboard.offer(payload.text);
    } else {
      took(payload.record ?? payload);
      if (event === "terminal.gone") again(STARTS_MS, OPEN_STATES.includes(record.state) ? look : check);
    }
  }

  function connection({ detail }) {
    if (detail === "connected") return look();
    wasTyping ||= typesAs !== null;
    isAway = true;
    leave();
    show();
  }

  function leave() {
    asked += 1;
    clearTimeout(timer);
    isWatched = false;
    early = null;
    if (typesAs !== null) types(null);
  }

  /** Take that it is in the document, and find out how it stands. */
  function enter() {
    link.addEventListener("told", told);
    link.addEventListener("state", connection);
    view.shown();
    show();
    look();
  }

  /** Take that it goes out of the document: the last picture stays. */
  function close() {
    link.removeEventListener("told", told);
    link.removeEventListener("state", connection);
    if (isWatched) link.call("terminals.leave", { sid }).catch(() => {});
    leave();
    wasTyping = false;
  }

  return { element, enter, close, focus: () => (typesAs === null ? view.scroller : keyboard.field).focus({ preventScroll: true }) };
}

/** Have an element say something, if it doesn't yet: what stays the same is not read aloud again. */
function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
  if (element.tagName === "P") element.hidden = !text;
}
