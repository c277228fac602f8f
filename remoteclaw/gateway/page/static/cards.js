// A request to people, with its choices.

import { el } from "./dom.js";

/** Return the buttons of a card; `answer(verdict, words)` resolves once the answer was taken. */
export function card({ choices }, answer) {
  const problem = el("p", { class: "problem", role: "alert", hidden: true });
  const words = el("input", { type: "text", "aria-label": "Your words", placeholder: "Why not, or your own words" });
  const verdicts = new Set(choices.map(([verdict]) => verdict));
  const box = el("div", { class: "choices", role: "group", "aria-label": "Answer" },
    choices.map(([verdict, label]) => el("button", { type: "button", class: verdict, onclick: () => choose(verdict) }, label)),
    verdicts.has("deny") || !verdicts.has("once") ? words : null,
    problem);

  async function choose(verdict) {
    for (const each of box.querySelectorAll("button")) each.disabled = true;
    try {
      await answer(verdict, words.value);
    } catch (error) {
      problem.hidden = false;
      problem.textContent = error.message;
      for (const each of box.querySelectorAll("button")) each.disabled = false;
    }
  }

  words.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && words.value.trim()) choose(verdicts.has("once") ? "deny" : "words");
  });
  return box;
}
