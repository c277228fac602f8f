// The row below a message: its time and actions, shown on demand, its usage, and its reactions.

import { copy } from "./clipboard.js";
import { button, el, stamp } from "./dom.js";
import { iconButton } from "./icons.js";

const EMOJI = ["👍", "👎", "❤️", "🎉", "👀"];

/**
 * Return the row of a message of the time `at` with the Markdown `text`; `reply` and `react(emoji)`
 * are missing where these are not possible, and `usage` is an element or null.
 */
export function messageMarks({ at, text, usage = null, reply, react }) {
  const reactions = new Map();  // by their author
  const shown = el("span", { class: "reactions" });
  const choice = el("span", { class: "emoji", role: "group", "aria-label": "React", hidden: true },
    EMOJI.map((emoji) => button(emoji, () => { toggle(); react(emoji); }, { class: "quiet" })));
  const reacting = iconButton("smile", "React", toggle, { "aria-expanded": "false" });
  const copying = text ? iconButton("copy", "Copy", () => copy(text, copying)) : null;
  const element = el("div", { class: "marks" }, shown,
    react && [iconButton("reply", "Reply", reply), reacting, choice], copying, stamp(at), usage);

  function toggle() {
    choice.hidden = !choice.hidden;
    reacting.setAttribute("aria-expanded", String(!choice.hidden));
    (choice.hidden ? reacting : choice.firstChild).focus({ preventScroll: true });
  }

  /** Set the reaction of an author; an empty one removes it. */
  function set({ from, emoji }) {
    if (emoji) reactions.set(from, emoji);
    else reactions.delete(from);
    shown.textContent = [...reactions.values()].join(" ");
  }

  return { element, set, of: (author) => reactions.get(author) };
}
