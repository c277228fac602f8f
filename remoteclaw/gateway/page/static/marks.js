// What a person does with a message: reply to it, and react.

import { el } from "./dom.js";

const EMOJI = ["👍", "👎", "❤️", "🎉", "👀"];

/** Return the marks of a message; `reply()` begins to, and `react(emoji)` does, where one may. */
export function marks({ reply, react }) {
  const reactions = new Map();  // by who has reacted
  const shown = el("span", { class: "reactions" });
  const choice = el("span", { class: "emoji", role: "group", "aria-label": "React", hidden: true },
    EMOJI.map((emoji) => el("button", { type: "button", class: "quiet", text: emoji, onclick: () => { toggle(); react(emoji); } })));
  const reacting = el("button", { type: "button", class: "quiet", "aria-expanded": "false", onclick: toggle, text: "React" });
  const element = el("div", { class: "marks" }, shown,
    react && [el("button", { type: "button", class: "quiet", onclick: reply, text: "Reply" }), reacting, choice]);

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
