// The pane of a session's terminal: the agent's own program, which many can watch and one can type in.

import { confirmButtons } from "./actions.js";
import { whileBusy, button, el, fill, problemLine, setMessage } from "./dom.js";
import { icon, iconButton, stateMark } from "./icons.js";
import { clipboardOffer } from "./terminal_clipboard.js";
import { dropFiles, takeFiles } from "./terminal_files.js";
import { menuItem, popover } from "./terminal_menu.js";
import { recording } from "./terminal_recording.js";
import { sharePanel } from "./terminal_share.js";
import { terminalKeyboard } from "./terminal_typing.js";
import { terminalView } from "./terminal_view.js";
import { needsPerson, peopleOf, shapeOf, stateOf } from "./terminal_status.js";

/** How many panes keep their last screen while other views are shown. */
const MAX_PANES = 8;
/** How soon a terminal is watched again that this gateway can't show for now, or has lost. */
const RETRY_MS = 5000, GONE_RETRY_MS = 1000;
const OPEN_STATES = ["starting", "live"];
const isTouched = matchMedia("(pointer: coarse)").matches;
const panes = new Map();
let styles = null;  // resolves once the style sheet is loaded

/** Return the pane of a session: the same one at each call, while it is kept. */
export async function terminalPane(link, sessionKey) {
  await (styles ??= new Promise((done) => document.head.append(
    el("link", { rel: "stylesheet", href: "/page/terminal.css", onload: done, onerror: done }))));
  const pane = panes.get(sessionKey) ?? makePane(link, sessionKey);
  panes.delete(sessionKey);
  panes.set(sessionKey, pane);  // as the most recently used one
  for (const key of panes.keys()) {
    if (panes.size <= MAX_PANES) break;
    if (!panes.get(key).element.isConnected) panes.delete(key);
  }
  return pane;
}

function makePane(link, sessionKey) {
  let record = null, sid = sessionKey;
  let isKnown = false, isAway = false, isWatched = false, isElsewhere = false;
  let typesAs = null;  // the name under which this page has the keyboard; null if it hasn't
  let wasTyping = false;  // whether it had the keyboard when the connection was lost
  let timer = null, requests = 0;
  let unfollow = () => {};  // ends the following of the record
  let pending = null;  // the events that arrive while the terminal is being opened for watching

  let uploads = Promise.resolve();  // the files that are uploaded, one set after the other
  let cast = null;  // the recording, while one is made

  const mark = el("span", { class: "tty-mark" });
  const status = el("p", { class: "tty-state", role: "status" });
  const people = el("p", { class: "tty-people" });
  const title = el("p", { class: "tty-title", dir: "auto" });
  const problem = problemLine(), outage = problemLine();
  const progress = el("p", { class: "about", role: "status", hidden: true });
  const clipboard = clipboardOffer();
  const keyboard = terminalKeyboard({
    send: type,
    onRefused: handleRefusal,
    onFiles: sendFiles,
    hasSelection: () => view.hasSelection(),
    leave: () => give.focus(),
    search,
    onInput: () => view.backToNow(),
  });
  const view = terminalView({
    field: keyboard.field,
    fetchRows: (start, count) => link.call("terminals.history", { sid, start, count }),
    find: (wanted) => link.call("terminals.search", { sid, text: wanted }),
    onResize: (size) => link.call("terminals.resize", { sid, ...size }).catch(handleRefusal),
  });

  const opening = button("Open terminal", () => act([opening], open), { class: "tty-open primary" });
  const take = button("Take control", () => act([take], () => takeControl({ force: Boolean(record.writer) })));
  const give = button("Give back", () => act([give], giveBack), { title: "Ctrl+Shift+. leads here from the terminal" });
  const seek = iconButton("search", "Search in the terminal", search, { class: "tty-wide-only" });
  const share = sharePanel((method, params) => link.call(method, { sid, ...params }));
  share.opener.classList.add("tty-wide-only");
  const sharing = menuItem("link", "Share", () => { menu.close(); share.open(menu.opener); });
  const interrupt = chosen("stop", "Interrupt (Esc)", () => type(["k:esc"]));
  const park = chosen("pause", "Park", () => link.call("terminals.park", { sid }));
  const picker = el("input", { type: "file", multiple: true, hidden: true, onchange: () => { sendFiles(picker.files); picker.value = ""; } });
  const attach = chosen("attach", "Attach files", () => picker.click());
  const recorder = menuItem("play", "", () => { menu.close(); focusKeys(); toggleRecording(); });
  const ending = el("div", { class: "tty-ending" },
    confirmButtons(["End", "Keep it", "End it, whatever it does"], () => { menu.close(); act([], () => link.call("terminals.end", { sid })); }));
  const menu = popover("more", "More", menuItem("search", "Search", () => { menu.close(); search(); }), attach, sharing, recorder, interrupt, park, ending);
  const text = el("textarea", { rows: "1", dir: "auto", "aria-label": "Message to the program", placeholder: "Write to the program",
    onkeydown: (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); submit(); }
    } });
  const sending = el("button", { type: "submit", class: "icon-button", "aria-label": "Send", title: "Send" }, icon("send"));
  const composer = el("form", { class: "tty-composer", onsubmit: (event) => { event.preventDefault(); submit(); } }, text, sending);
  const element = el("section", { class: "terminal", "aria-label": "Terminal of this session", onkeydown: onKey },
    el("div", { class: "tty-bar" }, mark, status, people, title,
      el("div", { class: "tty-actions" }, opening, take, give, seek, share.opener, menu.opener)),
    share.panel, menu.panel, picker,
    el("div", { class: "tty-notes" }, outage, problem, progress, clipboard.element),
    view.element, keyboard.bar, composer);

  const empty = el("p", { class: "tty-empty", hidden: true, text: "This is the agent's own program, as you start it yourself in a shell. Open it to watch it and to type; the conversation stays the same." });
  view.element.append(empty);
  view.element.addEventListener("mouseup", () => {
    if (typesAs !== null && !view.hasSelection()) keyboard.field.focus({ preventScroll: true });
  });
  takeFiles(view.element, sendFiles);

  /** Return an item of the menu that acts on the terminal. */
  function chosen(name, words, action) {
    const item = menuItem(name, words, () => { menu.close(); focusKeys(); act([item], action); });
    return item;
  }

  /** Continue to type after an action of the menu. */
  function focusKeys() {
    if (typesAs !== null) keyboard.field.focus({ preventScroll: true });
  }

  // -- display --------------------------------------------------------------------------------------

  function show() {
    const isOpen = OPEN_STATES.includes(record?.state), isHere = isOpen && isKnown && !isAway && !isElsewhere;
    const may = (scope) => link.scopes.includes(scope);
    element.dataset.state = isAway ? "away" : record?.state ?? "none";
    element.classList.toggle("needs-you", isHere && needsPerson(record));
    element.classList.toggle("in-control", typesAs !== null);
    const shape = isAway ? "failed" : isKnown && !isElsewhere ? shapeOf(record) : "terminal";
    if (mark.dataset.shape !== shape) {
      mark.dataset.shape = shape;
      fill(mark, stateMark(shape, ""));
    }
    setText(status, isAway ? "Connection lost: trying again. This is the last screen." : isKnown ? stateOf(record, isElsewhere) : "Loading…");
    setText(people, isHere ? peopleOf(record, typesAs !== null) : "");
    setText(title, view.state.title || record?.title || "");
    empty.hidden = isOpen || !isKnown || isAway || view.state.revision !== null;
    opening.hidden = isOpen || !isKnown || isAway || !may("write");
    opening.classList.toggle("resume", Boolean(record?.resumable));
    setText(opening, record?.resumable ? "Resume" : "Open terminal");
    for (const each of [take, interrupt, park, ending, share.opener, sharing]) each.hidden = !isHere || !may("terminal");
    take.hidden ||= typesAs !== null;
    give.hidden = attach.hidden = typesAs === null;
    for (const each of [seek, menu.opener]) each.hidden = !isHere;
    take.ariaLabel = record?.writer ? `Take control from ${record.writer}` : null;
    take.title = take.ariaLabel ?? "";
    recorder.lastChild.textContent = cast ? "Stop recording" : "Record";
    recorder.ariaPressed = String(Boolean(cast));
    element.classList.toggle("records", Boolean(cast));
    if (!isHere) { menu.close(); share.close(); }
    composer.hidden = !isHere || !may("terminal") || (typesAs !== null && !isTouched);
  }

  /** Update the pane from a record of the terminal. */
  function update(found) {
    record = found;
    sid = found.sid ?? sid;
    isKnown = true;
    const isOthers = found.writer && found.writer !== typesAs;
    if (typesAs !== null && (!OPEN_STATES.includes(found.state) || isOthers)) setTyping(null);
    else show();
  }

  /** Set the name under which this page has the keyboard; null if it hasn't. */
  function setTyping(name, { isAsked = false } = {}) {
    const hadFocus = element.contains(document.activeElement), hadKeys = document.activeElement === keyboard.field;
    typesAs = name;
    keyboard.enable(name !== null);
    view.setOwn(name !== null);
    show();
    if (name === null && hadKeys) (take.hidden ? view.scroller : take).focus();
    if (name !== null && (hadFocus || isAsked)) keyboard.field.focus({ preventScroll: true });
  }

  // -- the terminal's state -------------------------------------------------------------------------

  /** Follow the record of the terminal. */
  function follow() {
    unfollow();
    unfollow = link.follow("terminals.get", { sid }, onRecord, showAbsent);
  }

  /** Watch the terminal, which is open. */
  async function watch() {
    const request = ++requests;
    clearTimeout(timer);
    pending = [];
    try {
      const found = await link.call("terminals.watch", { sid });
      if (request !== requests) return;
      isWatched = true;
      isElsewhere = isAway = false;
      setMessage(outage, "");
      const events = pending;
      pending = null;
      update(found);
      events.forEach(onEvent);
      if (wasTyping) await takeControl({}).catch(() => {});  // the gateway keeps it for ten seconds
      wasTyping = false;
    } catch (error) {
      if (request !== requests) return;
      pending = null;
      isAway = isWatched = false;
      isElsewhere = record?.state === "live";
      setMessage(outage, error.message);
      show();
      if (error.code === "UNAVAILABLE") watchAfter(RETRY_MS);  // else once its record has changed
    }
  }

  function watchAfter(ms) {
    clearTimeout(timer);
    timer = setTimeout(watch, ms);
  }

  /** Show a record of the terminal, and watch it if it is open. */
  async function onRecord(found) {
    const isOpen = OPEN_STATES.includes(found.state);
    if (isOpen && (isWatched || pending)) return;  // the events are newer
    isAway = isWatched = isElsewhere = false;
    setMessage(outage, "");
    update(found);
    if (isOpen) return watch();
    clearTimeout(timer);
    const request = ++requests;
    pending = null;
    if (view.state.revision !== null) return;
    const last = await link.call("terminals.screen", { sid }).catch(() => null);
    if (last && request === requests) view.apply(last.frame);
  }

  function showAbsent(refusal) {
    isAway = isWatched = isElsewhere = false;
    isKnown = true;
    record = null;
    setMessage(outage, refusal.code === "NOT_FOUND" ? "" : refusal.message);
    show();
  }

  // -- actions --------------------------------------------------------------------------------------

  async function open() {
    const opened = await link.call("terminals.open", { session: sessionKey, ...view.room() });
    update(opened.terminal);
    if (opened.waits) setMessage(problem, "It opens when the turn before it has ended.");
    await watch();
  }

  async function takeControl(params) {
    const found = await link.call("terminals.take", { sid, ...view.room(), ...params });
    setTyping(found.writer, { isAsked: "force" in params });  // the rest of the record arrives as an event
  }

  /** Release the keyboard, and continue to watch. */
  async function giveBack() {
    setTyping(null);
    await link.call("terminals.leave", { sid });
    await watch();
  }

  function type(keys, more) {
    return link.call("terminals.type", { sid, keys, ...more });
  }

  async function submit() {
    const typed = text.value;
    if (!typed.trim()) return;
    await act([sending], async () => {
      await type([`p:${typed}`], { submit: true });
      if (text.value === typed) text.value = "";
    });
  }

  /** Upload pictures and files, whose paths are then typed, in order. */
  function sendFiles(files) {
    if (typesAs === null) return setMessage(problem, "Take control first: then files go to the program.");
    const wanted = [...files];
    view.backToNow();
    uploads = uploads.then(async () => {
      setMessage(progress, `Uploading ${wanted.map((file) => file.name).join(", ")}…`);
      await act([], () => dropFiles(link, { sid, sessionKey: record.sessionKey }, wanted));
      setMessage(progress, "");
    });
  }

  function search() {
    view.search(typesAs !== null ? () => keyboard.field.focus({ preventScroll: true }) : undefined);
  }

  function onKey(event) {
    const isFind = (event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey && event.key.toLowerCase() === "f";
    if (!isFind || event.defaultPrevented || view.state.revision === null) return;
    event.preventDefault();
    search();
  }

  /** Begin a recording, or end it and offer it for download. */
  function toggleRecording() {
    cast?.save();
    cast = cast || view.state.revision === null ? null : recording(view.state, title.textContent);
    show();
  }

  function act(buttons, action) {
    return whileBusy(buttons, async () => {
      setMessage(problem, "");
      await action().catch((error) => setMessage(problem, error.message));
    });
  }

  /** Show why typing was refused, and release the keyboard if another user has it. */
  function handleRefusal(error) {
    setMessage(problem, error.message);
    if (error.code === "CONFLICT" && typesAs !== null) setTyping(null);
  }

  // -- events ---------------------------------------------------------------------------------------

  function onEvent(frame) {
    const { event, payload } = frame.detail;
    if (!event?.startsWith("terminal.")) return;
    if (pending) return pending.push(frame);
    if ((payload.sid ?? payload.record?.sid) !== sid) return;
    if (event === "terminal.screen") {
      const changed = view.apply(payload);
      if (!changed) watch();  // after a gap: returns a full frame
      else if (cast && !cast.add(view.state, changed)) toggleRecording();  // it is full
      if (title.textContent !== payload.title) show();
    } else if (event === "terminal.bell") {
      dispatchEvent(new Event("terminal-bell"));
    } else if (event === "terminal.clipboard") {
      clipboard.offer(payload.text);
    } else {
      update(payload.record ?? payload);
      if (event !== "terminal.gone") return;
      if (cast) toggleRecording();
      isWatched = false;
      if (OPEN_STATES.includes(record.state)) watchAfter(GONE_RETRY_MS);
    }
  }

  function onState({ detail }) {
    if (detail === "connected") return follow();
    wasTyping ||= typesAs !== null;
    isAway = true;
    leave();
    show();
  }

  function leave() {
    requests += 1;
    clearTimeout(timer);
    isWatched = false;
    pending = null;
    if (typesAs !== null) setTyping(null);
  }

  /** Begin to watch, once the pane is in the document. */
  function enter() {
    link.addEventListener("event", onEvent);
    link.addEventListener("state", onState);
    view.prepare();
    show();
    follow();
  }

  /** Stop watching when the pane leaves the document; it keeps the last screen. */
  function close() {
    if (cast) toggleRecording();
    link.removeEventListener("event", onEvent);
    link.removeEventListener("state", onState);
    unfollow();
    if (isWatched) link.call("terminals.leave", { sid }).catch(() => {});
    leave();
    wasTyping = false;
  }

  return { element, enter, close, focus: () => (typesAs === null ? view.scroller : keyboard.field).focus({ preventScroll: true }) };
}

/** Set the text of an element if it differs: an unchanged text must not be read aloud again. */
function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
  if (element.tagName === "P") element.hidden = !text;
}
