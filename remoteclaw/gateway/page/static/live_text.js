// The partial text of the running turn. It is updated in place, and finally becomes the answer.

import { el } from "./dom.js";
import { messageText } from "./messages.js";
import { morph } from "./morph.js";
import { elapsed } from "./tool_cards.js";

/** How many characters of the live text an answer has to begin with to replace it in place. */
const SAME_CHARS = 300;

/** Return the live text of a conversation, which is the last element of `messages`. */
export function liveText(messages) {
  let element = null;
  let text = "";

  /** Show the payload of `session.live`, with the agent's name and the duration of the turn. */
  function show(payload, agent, ms) {
    text = payload.text.trim();
    const wanted = el("li", { class: "live" },
      el("div", { class: "by" }, el("h2", { class: "who", text: agent }), el("span", { class: "since", text: elapsed(ms) })),
      text ? messageText(payload) : null, el("p", { class: "thinking", role: "img", "aria-label": "works" }, el("i"), el("i"), el("i")));
    if (element) morph(element, wanted);
    else messages.append(element = wanted);
  }

  function hide() {
    element?.remove();
    element = null;
  }

  /** Turn the element into the answer `message` if its text begins like the live text; return it, or else null. */
  function become(message, answer) {
    if (!element || !text || !(answer ?? "").trim().startsWith(text.slice(0, SAME_CHARS))) return null;
    const shown = element;
    element = null;
    morph(shown, message);
    return shown;
  }

  /** Update the duration of the turn. */
  function tick(ms) {
    if (element) element.querySelector(".since").textContent = elapsed(ms);
  }

  return { show, hide, become, tick, get element() { return element; } };
}
