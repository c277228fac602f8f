// The answer as far as it has come. It grows in place and becomes the message that it is in the end.

import { el } from "./dom.js";
import { written } from "./messages.js";
import { morph } from "./morph.js";
import { elapsed } from "./tools.js";

/** How much of live text a message has to begin with, to be the same. */
const SAME = 300;

/** Return the live text of a conversation: it is the last one of these messages. */
export function liveText(messages) {
  let element = null;
  let said = "";

  /** Show `session.live`; `who` answers, for so long. */
  function show(now, who, ms) {
    said = now.text.trim();
    const wanted = el("li", { class: "live" },
      el("div", { class: "by" }, el("h2", { class: "who", text: who }), el("span", { class: "since", text: elapsed(ms) })),
      said ? written(now) : el("p", { class: "thinking", text: "…" }));
    if (element) morph(element, wanted);
    else messages.append(element = wanted);
  }

  function hide() {
    element?.remove();
    element = null;
  }

  /** Have it become this message, if it is; return the element that shows it, or null. */
  function become(message, text) {
    if (!element || !said || !(text ?? "").trim().startsWith(said.slice(0, SAME))) return null;
    const shown = element;
    element = null;
    morph(shown, message);
    return shown;
  }

  /** Say how long the turn has taken. */
  function tick(ms) {
    if (element) element.querySelector(".since").textContent = elapsed(ms);
  }

  return { show, hide, become, tick, get element() { return element; } };
}
