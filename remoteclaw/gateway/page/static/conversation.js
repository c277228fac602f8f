// A conversation as it stands on the page: its head, its messages, and what is going on at its end.

import { el, fill } from "./dom.js";
import { goingOn } from "./tools.js";

const NEAR_PX = 80;

/** Return an empty conversation; `stop()` ends its running turn, by those who may. */
export function conversationFrame(name, { stop, mayStop = () => true, panel = null, below = null }) {
  const messages = el("ol", { class: "messages", "aria-label": "Messages" });
  const live = el("div", { class: "live", "aria-live": "off", hidden: true });
  const title = el("h1", { text: name });
  const about = el("p", { class: "about" });
  const stopping = el("button", { type: "button", class: "stop", hidden: true, onclick: stop }, "Stop");
  const problem = el("p", { class: "problem", role: "alert", hidden: true });
  const scroller = el("div", { class: "scroller", role: "log", "aria-label": "Conversation", tabindex: "0" }, messages, problem, live);
  const element = el("section", { class: "conversation" },
    el("div", { class: "head" }, title, about, stopping, panel), scroller, below);

  /** Change it: a person who reads further up is left there, who is at the end stays at the end. */
  function grown(change) {
    const isNear = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < NEAR_PX;
    change();
    if (isNear) scroller.scrollTop = scroller.scrollHeight;
  }

  function complain(words) {
    problem.hidden = !words;
    problem.textContent = words;
  }

  function hideLive() {
    live.hidden = true;
    fill(live);
  }

  /** Say whether a turn runs. */
  function running(isRunning) {
    stopping.hidden = !isRunning || !mayStop();
    if (!isRunning) hideLive();
  }

  /** Show what is going on, as `session.live` tells it. */
  function showLive(now) {
    grown(() => {
      running(true);
      live.hidden = false;
      fill(live, goingOn(now));
    });
  }

  return { element, messages, title, about, grown, complain, running, showLive, hideLive };
}
