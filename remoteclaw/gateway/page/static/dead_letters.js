// The list of dead letters: messages and replies that were given up, with buttons to retry or drop them.

import { actionRunner, confirmButtons } from "./actions.js";
import { button, count, el, newId, problemLine, setMessage, stamp } from "./dom.js";
import { updatedRows } from "./tables.js";
import { nameOf, sessionLink } from "./session_keys.js";

/** Return the section of dead letters, and the button that shows and hides it. */
export function deadLetters(link) {
  const title = el("h3", { class: "unseen", tabindex: "-1", text: "Dead letters" });
  const note = el("p", { class: "note", role: "status" });
  const list = el("ul", { class: "letters" });
  const notice = el("p", { class: "notice" });
  const showRows = updatedRows(list, { key: (letter) => letter.id, draw, home: title });
  const element = el("section", { id: newId(), class: "dead-letters", "aria-label": "Dead letters", hidden: true }, title, note, notice, list);
  const toggle = button("Show", () => {
    element.hidden = !element.hidden;
    toggle.textContent = element.hidden ? "Show" : "Hide";
    toggle.ariaExpanded = String(!element.hidden);
    if (!element.hidden) title.focus();
  }, { "aria-controls": element.id, "aria-expanded": "false" });

  /** Show letters, the oldest of `total`. The section stays hidden until `toggle` shows it. */
  function show(letters, total) {
    const mayChange = link.scopes.includes("admin");
    showRows(letters.map((letter) => ({ ...letter, mayChange })));
    setMessage(notice, !letters.length ? "Nothing was given up." : total > letters.length ? `These are the oldest of ${count(total)}.` : "");
  }

  function draw(letter) {
    const problem = problemLine();
    const name = letter.sessionKey ? nameOf(letter.sessionKey) : letter.account ?? "unknown";
    const retry = button("Try again", () => act(async () => {
      const retried = await link.call("deadletters.retry", { id: letter.id });
      note.textContent = retried.runId ? `It is tried again in ${name}.` : `It is sent again by ${retried.account}.`;
    }));
    const dropping = confirmButtons(["Drop", "Keep", "Drop for good"], () => act(async () => {
      await link.call("deadletters.drop", { id: letter.id });
      note.textContent = "It is gone.";
    }), [retry]);
    const choices = el("div", { class: "choices", hidden: !letter.mayChange, role: "group", "aria-label": `Of ${name}` }, retry, dropping);
    const act = actionRunner(choices.children, problem);

    return [
      el("p", { class: "by" },
        letter.sessionKey ? sessionLink(letter.sessionKey) : name,
        " ", stamp(letter.givenUpMs)),
      el("p", { text: letter.why }),
      el("blockquote", { text: letter.text ?? "It can't be read." }),
      letter.files ? el("p", { class: "about", text: letter.files === 1 ? "with a file" : `with ${count(letter.files)} files` }) : null,
      choices, problem,
    ].filter(Boolean);
  }

  return { element, toggle, show };
}
