// The text that a program in a terminal offers for the clipboard. It is copied only when a user confirms.

import { button, el, setMessage } from "./dom.js";

/** Return the element of the offer, hidden until `offer(text)` sets a text. */
export function clipboardOffer() {
  const note = el("span", { class: "about", role: "status" });
  const preview = el("textarea", { rows: "2", readonly: true, "aria-label": "What the program offers" });
  const copy = button("Copy what the program offers", copyText);
  const drop = button("Drop it", () => { element.hidden = true; });
  const element = el("div", { class: "tty-offer", hidden: true }, preview, copy, drop, note);

  async function copyText() {
    try {
      await navigator.clipboard.writeText(preview.value);
      setMessage(note, "Copied.");
    } catch {  // pages have no clipboard over plain HTTP
      preview.select();
      setMessage(note, "Your browser does not let this page copy: press Ctrl+C.");
    }
  }

  function offer(text) {
    preview.value = String(text);
    setMessage(note, "");
    element.hidden = !preview.value;
  }

  return { element, offer };
}
