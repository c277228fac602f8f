// The frame of a conversation: its head, its messages, and the live text of the running turn.

import { turnActivity } from "./turn_activity.js";
import { bar, button, el, fill, pauseOf, problemLine, setMessage, whileBusy } from "./dom.js";
import { icon, iconButton } from "./icons.js";
import { liveText } from "./live_text.js";
import { onCopyPressed } from "./messages.js";

/** How close to the end or the beginning of the messages counts as being there. */
const NEAR_PX = 80;
/** How long the live text of an ended turn stays while its answer has not arrived. */
const ARRIVES_MS = 3000;

/** Whether a session in this state has a turn, or will have one; a terminal is none. */
export function isAtWork(state) {
  return state === "running" || state === "scheduled";
}

/**
 * Return an empty conversation. If `mayStop()`, people can stop its running turn, or drop a
 * postponed one, with `stop()`, and ask the agent of a postponed one again with `retry()`.
 * `isAsking()` is whether its agent waits for a person: the request shows that, not the live text.
 * `actions` are the buttons of the bar. `onRunning(isRunning)` shows whether a turn can be stopped;
 * without it, the bar has the button for that.
 */
export function conversationFrame(name, { stop, retry, isAsking, mayStop = () => true, onRunning = null, actions = [], below = null }) {
  const messages = el("ol", { class: "messages", "aria-label": "Messages", onclick: onCopyPressed });
  const text = liveText(messages);
  const activity = turnActivity(insert);
  let loadEarlier = null;
  let isAtEnd = true;
  let height = 0;  // of the scroller, for which `isAtEnd` is known
  let timer = null;  // updates the elapsed seconds; null while no turn runs
  let hideTimer = null;  // removes live text whose answer does not arrive
  let live = null;  // the last `session.live`, with the offset of its clock to this one as `at`
  const title = el("h1", { text: name, dir: "auto" });
  const about = el("p", { class: "about" });
  const stopping = onRunning ? null : iconButton("stop", "Stop", stop, { class: "stop", hidden: true });
  const pause = el("p", { role: "status" });
  const trying = button("Try now", () => endPause(retry)), dropping = button("Drop", () => endPause(stop), { class: "danger" });
  const paused = el("div", { class: "paused", hidden: true }, icon("waits"), pause, el("div", { class: "strip" }, trying, dropping));
  const problem = problemLine();
  const earlier = button("Earlier messages", showEarlier, { class: "earlier", hidden: true });
  const scroller = el("div", { class: "scroller", role: "region", "aria-label": "Conversation", tabindex: "0",
    onscroll: () => { isAtEnd = isShownAtEnd(); if (scroller.scrollTop < NEAR_PX) showEarlier(); } }, earlier, messages, paused, problem);
  const head = bar(el("div", { class: "titles" }, title, about), stopping, actions);
  const element = el("section", { class: "conversation" }, head, scroller, below);

  // Stay at the end when the composer below grows.
  new ResizeObserver(() => { height = scroller.clientHeight; if (isAtEnd) toEnd(); }).observe(scroller);

  /** Set the title, also that of the window. */
  function setTitle(text) {
    title.textContent = title.title = text;
    if (element.isConnected) dispatchEvent(new CustomEvent("view-title", { detail: text }));
  }

  function isNearEnd() {
    return scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < NEAR_PX;
  }

  /** Whether the end is shown, or was until the scroller's height changed just now. */
  function isShownAtEnd() {
    return scroller.clientHeight === height ? isNearEnd() : isAtEnd;
  }

  /** Scroll to the end, where what the person sends now will be shown. */
  function toEnd() {
    scroller.scrollTop = scroller.scrollHeight;
  }

  /** Run `change()`, and stay at the end of the messages if they were scrolled to the end. */
  function keepAtEnd(change) {
    const wasNear = isShownAtEnd();
    change();
    if (wasNear) toEnd();
  }

  /** Run `change()`, which inserts messages above, without moving the visible messages. */
  function insertAbove(change) {
    const distance = scroller.scrollHeight - scroller.scrollTop;
    change();
    scroller.scrollTop = scroller.scrollHeight - distance;
  }

  /** Offer earlier messages, which `load()` shows; null if there are none. */
  function offerEarlier(load) {
    loadEarlier = load;
    earlier.hidden = !load;
  }

  async function showEarlier() {
    if (!loadEarlier || earlier.disabled) return;
    earlier.disabled = true;
    try {
      await loadEarlier();
    } catch (error) {
      return showProblem(error.message);
    } finally {
      earlier.disabled = false;
    }
    if (scroller.clientHeight && scroller.scrollTop < NEAR_PX) showEarlier();  // scrolled further up meanwhile
  }

  const showProblem = (message) => setMessage(problem, message);

  /** Insert an element after all older ones. */
  function insert(made, at) {
    let before = text.element;
    for (let each = before ? before.previousSibling : messages.lastChild; each && Number(each.dataset.at) > at; each = each.previousSibling) before = each;
    made.dataset.at = at;
    messages.insertBefore(made, before);
  }

  /** Whether another turn is shown as running, so that the end of `turn` does not end the live text. */
  const isOther = (turn) => timer !== null && turn !== live.turn;

  /** Turn the live text into the answer `made` of a turn, or remove it; return the element of the answer. */
  function replaceLive(made, answer, turn) {
    if (isOther(turn)) return made;
    const shown = text.become(made, answer);
    if (!shown) text.hide();
    return shown ?? made;
  }

  function clear() {
    activity.clear();
    text.hide();
    fill(messages);
  }

  /** Set whether a turn runs; with `isArriving`, the answer of an ended one will still arrive. */
  function setRunning(isRunning, { isArriving = false } = {}) {
    if (stopping) stopping.hidden = !isRunning || !mayStop();
    onRunning?.(isRunning);
    clearTimeout(hideTimer);
    if (isRunning) return;
    clearInterval(timer);
    timer = null;
    if (isArriving) hideTimer = setTimeout(() => text.hide(), ARRIVES_MS);
    else text.hide();
  }

  /** Note that a turn has ended; null for an outcome without a turn. */
  function endTurn(turn, isArriving) {
    showPause({});
    if (!isOther(turn)) setRunning(false, { isArriving });
  }

  /** Show until when the turn is postponed, or hide that it was. */
  function showPause(facts) {
    const text = pauseOf(facts);
    keepAtEnd(() => {
      paused.hidden = !text;
      if (!text) return;
      setRunning(false);
      pause.textContent = `It ${text}.`;
      trying.hidden = !mayStop();
      dropping.hidden = !mayStop() || facts.state === "terminal";  // it would end the terminal, too
    });
  }

  async function endPause(action) {
    await whileBusy([trying, dropping], () => action().then(() => showPause({}), (error) => showProblem(error.message)));
  }

  /** Show the payload of `session.live`; `agent` is the agent's name. */
  function showLive(payload, agent = "agent") {
    keepAtEnd(() => {
      setRunning(true);
      showPause({});
      live = { ...payload, at: payload.at - Date.now() };
      activity.showLive(payload);
      showText(payload, agent);
      tick();
    });
    timer ??= setInterval(tick, 1000);
  }

  function showText(payload, agent) {
    if (isAsking() && !payload.text.trim()) text.hide();
    else text.show(payload, agent, payload.at - payload.since_ms);
  }

  /** Show or hide the live text after a change of the requests to people. */
  function showRequests(agent = "agent") {
    if (timer !== null) keepAtEnd(() => showText({ ...live, at: Date.now() + live.at }, agent));
  }

  function tick() {
    if (!scroller.isConnected) return clearInterval(timer);
    const nowMs = Date.now() + live.at;
    activity.tick(nowMs);
    text.tick(nowMs - live.since_ms);
  }

  return { element, messages, setTitle, about, activity, insert, replaceLive, clear, keepAtEnd, toEnd, insertAbove, offerEarlier, showProblem, setRunning, showPause, showRequests, endTurn, showLive };
}
