// What a person does with a message: reply to it, and react.

import { button, el } from "./dom.js";

const EMOJI = ["👍", "👎", "❤️", "🎉", "👀"];

/** Return the marks of a message; `reply()` begins to, and `react(emoji)` does, where one may. */
export function marks({ reply, react }) {
  const reactions = new Map();  // by who has reacted
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

  /** Show what somebody reacts with by now. */
  function take({ from, emoji }) {
    if (emoji) reactions.set(from, emoji);
    else reactions.delete(from);
    shown.textContent = [...reactions.values()].join(" ");
  }

  return { element, take, of: (who) => reactions.get(who) };
}
