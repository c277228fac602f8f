// A conversation as it stands on the page: its head, its messages, and what is going on at its end.

import { doings } from "./doings.js";
import { button, el, fill, problemLine, say } from "./dom.js";
import { liveText } from "./live.js";

const NEAR_PX = 80;
/** How long an answer may be on its way: until then, what is known of it stays. */
const ARRIVES_MS = 3000;

/** Return an empty conversation; `stop()` ends its running turn, by those who may. */
export function conversationFrame(name, { stop, mayStop = () => true, panel = null, below = null }) {
  const messages = el("ol", { class: "messages", "aria-label": "Messages" });
  const live = liveText(messages);
  const doing = doings(put);
  let bring = null;
  let isAtEnd = true;
  let timer = null;  // of the seconds that are counted
  let leaving = null;  // of live text whose answer doesn't arrive
  let now = null;  // what goes on, and when that was by this clock
  const title = el("h1", { text: name });
  const about = el("p", { class: "about" });
  const stopping = button("Stop", stop, { class: "stop", hidden: true });
  const problem = problemLine();
  const earlier = button("Earlier messages", more, { class: "earlier", hidden: true });
  const scroller = el("div", { class: "scroller", role: "region", "aria-label": "Conversation", tabindex: "0",
    onscroll: () => { isAtEnd = isNear(); if (scroller.scrollTop < NEAR_PX) more(); } }, earlier, messages, problem);
  const element = el("section", { class: "conversation" },
    el("div", { class: "head" }, title, about, stopping, panel), scroller, below);

  // Who is at the end stays there, too, while what is below takes more room: words, files, a problem.
  new ResizeObserver(() => { if (isAtEnd) scroller.scrollTop = scroller.scrollHeight; }).observe(scroller);

  function isNear() {
    return scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < NEAR_PX;
  }

  /** Change it: a person who reads further up is left there, who is at the end stays at the end. */
  function grown(change) {
    const wasNear = isNear();
    change();
    if (wasNear) scroller.scrollTop = scroller.scrollHeight;
  }

  /** Change what stands above: what a person reads stays where it is. */
  function above(change) {
    const left = scroller.scrollHeight - scroller.scrollTop;
    change();
    scroller.scrollTop = scroller.scrollHeight - left;
  }

  /** Offer what is earlier, which `next()` brings; null: there is nothing. */
  function offerEarlier(next) {
    bring = next;
    earlier.hidden = !next;
  }

  async function more() {
    if (!bring || earlier.disabled) return;
    earlier.disabled = true;
    try {
      await bring();
    } catch (error) {
      return complain(error.message);
    } finally {
      earlier.disabled = false;
    }
    if (scroller.clientHeight && scroller.scrollTop < NEAR_PX) more();  // gone further up meanwhile
  }

  const complain = (words) => say(problem, words);

  /** Put an element behind all that is older. */
  function put(made, at) {
    let before = live.element;
    for (let each = before ? before.previousSibling : messages.lastChild; each && Number(each.dataset.at) > at; each = each.previousSibling) before = each;
    made.dataset.at = at;
    messages.insertBefore(made, before);
  }

  /** Whether another turn is shown at work: what is answered beside that one ends nothing. */
  const isBeside = (turn) => timer !== null && turn !== now.turn;

  /** Show a turn's answer: live text becomes it, or else makes room. Return the element that it has. */
  function arrived(made, text, turn) {
    if (isBeside(turn)) return made;
    const shown = live.become(made, text);
    if (!shown) live.hide();
    return shown ?? made;
  }

  function clear() {
    doing.clear();
    live.hide();
    fill(messages);
  }

  /** Say whether a turn runs; one that has ended may have an answer on its way. */
  function running(isRunning, { isArriving = false } = {}) {
    stopping.hidden = !isRunning || !mayStop();
    clearTimeout(leaving);
    if (isRunning) return;
    clearInterval(timer);
    timer = null;
    if (isArriving) leaving = setTimeout(() => live.hide(), ARRIVES_MS);
    else live.hide();
  }

  /** Take that a message has its outcome, by a turn or none. */
  function ended(turn, isArriving) {
    if (!isBeside(turn)) running(false, { isArriving });
  }

  /** Show what is going on, as `session.live` tells it; `who` works. */
  function showLive(told, who = "agent") {
    grown(() => {
      running(true);
      now = { ...told, at: told.at - Date.now() };
      doing.live(told);
      live.show(told, who, told.at - told.since_ms);
      tick();
    });
    timer ??= setInterval(tick, 1000);
  }

  function tick() {
    if (!scroller.isConnected) return clearInterval(timer);
    const atMs = Date.now() + now.at;
    doing.tick(atMs);
    live.tick(atMs - now.since_ms);
  }

  return { element, messages, title, about, doing, put, arrived, clear, grown, above, offerEarlier, complain, running, ended, showLive };
}
