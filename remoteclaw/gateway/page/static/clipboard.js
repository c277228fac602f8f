// Copying text, which browsers allow over https and on localhost, and else only from a selection.

import { el, liveRegion } from "./dom.js";
import { icon } from "./icons.js";

/** How long a button shows that its text was copied. */
const DONE_MS = 1500;

/** Copy a text, and show on the icon button that it is copied. */
export async function copy(text, button) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const field = el("textarea", { class: "unseen", readonly: true });
    field.value = text;
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
    button.focus({ preventScroll: true });
  }
  liveRegion.textContent = "Copied.";
  const shown = button.querySelector(".icon"), done = icon("check");
  shown.replaceWith(done);
  setTimeout(() => done.replaceWith(shown), DONE_MS);
}
