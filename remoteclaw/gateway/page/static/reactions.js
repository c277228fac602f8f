// The bar below a message: its reactions, and buttons to reply and react.

import { button, el } from "./dom.js";

const EMOJI = ["👍", "👎", "❤️", "🎉", "👀"];

/** Return the bar of a message; `reply` and `react(emoji)` are missing where these are not possible. */
export function reactionBar({ reply, react }) {
  const reactions = new Map();  // by their author
  const shown = el("span", { class: "reactions" });
  const choice = el("span", { class: "emoji", role: "group", "aria-label": "React", hidden: true },
    EMOJI.map((emoji) => button(emoji, () => { toggle(); react(emoji); }, { class: "quiet" })));
  const reacting = button("React", toggle, { class: "quiet", "aria-expanded": "false" });
  const element = el("div", { class: "marks" }, shown,
    react && [button("Reply", reply, { class: "quiet" }), reacting, choice]);

  function toggle() {
    choice.hidden = !choice.hidden;
    reacting.setAttribute("aria-expanded", String(!choice.hidden));
  }

  /** Set the reaction of an author; an empty one removes it. */
  function set({ from, emoji }) {
    if (emoji) reactions.set(from, emoji);
    else reactions.delete(from);
    shown.textContent = [...reactions.values()].join(" ");
  }

  return { element, set, of: (author) => reactions.get(author) };
}
