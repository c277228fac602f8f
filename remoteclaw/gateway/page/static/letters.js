// Dead letters: messages and replies that were given up, to retry or to drop.

import { count, el, problemLine, say, stamp } from "./dom.js";
import { kept, nameOf } from "./kept.js";

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
    const button = (text, onclick, more = {}) => el("button", { type: "button", onclick, ...more }, text);
    const retry = button("Retry", () => act(async () => {
      const again = await link.call("deadletters.retry", { id: letter.id });
      told.textContent = again.runId ? `It is tried again in ${name}.` : `It is sent again by ${again.account}.`;
    }));
    const drop = button("Drop", () => asks(true), { class: "deny" });
    const keep = button("Keep", () => asks(false), { hidden: true });
    const sure = button("Drop for good", () => act(async () => {
      await link.call("deadletters.drop", { id: letter.id });
      told.textContent = "It is gone.";
    }), { class: "deny", hidden: true });
    const choices = el("div", { class: "choices", hidden: !letter.may, role: "group", "aria-label": `Of ${name}` }, retry, drop, keep, sure);

    function asks(isAsked) {
      for (const each of [keep, sure]) each.hidden = !isAsked;
      for (const each of [retry, drop]) each.hidden = isAsked;
      (isAsked ? keep : drop).focus();
    }

    async function act(what) {
      say(problem, "");
      for (const each of choices.children) each.disabled = true;
      try {
        await what();
        await look();
      } catch (error) {
        say(problem, error.message);
      }
      for (const each of choices.children) each.disabled = false;
    }

    return [
      el("p", { class: "by" },
        letter.sessionKey ? el("a", { href: `#/s/${encodeURIComponent(letter.sessionKey)}`, text: name, title: letter.sessionKey }) : name,
        " ", stamp(letter.givenUpMs)),
      el("p", { text: letter.why }),
      el("blockquote", { text: letter.text ?? "It can't be read." }),
      letter.files ? el("p", { class: "about", text: letter.files === 1 ? "with a file" : `with ${count(letter.files)} files` }) : null,
      choices, problem,
    ].filter(Boolean);
  }

  return { element: el("section", { "aria-label": "Dead letters" }, title, told, notice, list), show };
}
