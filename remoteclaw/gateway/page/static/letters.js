// Dead letters: messages and replies that were given up, to retry or to drop.

import { actions, twice } from "./actions.js";
import { button, count, el, problemLine, say, stamp } from "./dom.js";
import { kept } from "./kept.js";
import { nameOf, sessionLink } from "./session_keys.js";

export function lettersList(link, look) {
  const title = el("h2", { tabindex: "-1", text: "Dead letters" });
  const told = el("p", { class: "told", role: "status" });
  const list = el("ul", { class: "letters" });
  const notice = el("p", { class: "notice" });
  const rows = kept(list, { key: (letter) => letter.id, draw, home: title });

  function show(letters, all) {
    const may = link.scopes.includes("admin");
    rows(letters.map((letter) => ({ ...letter, may })));
    say(notice, !letters.length ? "Nothing was given up." : all > letters.length ? `These are the oldest of ${count(all)}.` : "");
  }

  function draw(letter) {
    const problem = problemLine();
    const name = letter.sessionKey ? nameOf(letter.sessionKey) : letter.account ?? "unknown";
    const retry = button("Retry", () => act(async () => {
      const again = await link.call("deadletters.retry", { id: letter.id });
      told.textContent = again.runId ? `It is tried again in ${name}.` : `It is sent again by ${again.account}.`;
    }));
    const dropping = twice(["Drop", "Keep", "Drop for good"], () => act(async () => {
      await link.call("deadletters.drop", { id: letter.id });
      told.textContent = "It is gone.";
    }), [retry]);
    const choices = el("div", { class: "choices", hidden: !letter.may, role: "group", "aria-label": `Of ${name}` }, retry, dropping);
    const act = actions(choices.children, problem, look);

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

  return { element: el("section", { "aria-label": "Dead letters" }, title, told, notice, list), show };
}
