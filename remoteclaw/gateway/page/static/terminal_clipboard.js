// What a program in a terminal offers for copying: it gets nowhere before a person has said so.

import { button, el, say } from "./dom.js";

/** Return the offer, of which nothing is seen before there is one; `offer(text)` replaces the last. */
export function offered() {
  const told = el("span", { class: "about", role: "status" });
  const preview = el("textarea", { rows: "2", readonly: true, "aria-label": "What the program offers" });
  const copy = button("Copy what the program offers", copied);
  const drop = button("Drop it", () => { element.hidden = true; });
  const element = el("div", { class: "tty-offer", hidden: true }, preview, copy, drop, told);

  async function copied() {
    try {
      await navigator.clipboard.writeText(preview.value);
      say(told, "Copied.");
    } catch {  // over plain http, browsers have no clipboard for pages
      preview.select();
      say(told, "Your browser lets no page copy here: press Ctrl+C.");
    }
  }

  function offer(text) {
    preview.value = String(text);
    say(told, "");
    element.hidden = !preview.value;
  }

  return { element, offer };
}
