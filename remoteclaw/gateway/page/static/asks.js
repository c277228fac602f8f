// What agents ask people for, wherever they work.

import { card } from "./cards.js";
import { ago, el, fill } from "./dom.js";

/** Only who follows a session is told of its requests, and this is about all: it looks by itself. */
const EVERY_MS = 2000;

export function asksView(link) {
  const list = el("ul", { class: "asks" });
  const timer = setInterval(look, EVERY_MS);
  let shown = null;
  const element = el("section", {}, el("h1", { text: "Requests" }), list);

  async function look() {
    const { asks } = await link.call("asks.list").catch(() => ({}));
    if (!asks) return;  // what was there may still be
    const ids = asks.map((ask) => ask.id).join();
    if (ids === shown) return;  // words that a person has begun to write stay
    shown = ids;
    fill(list, asks.length ? asks.map(row) : el("li", { class: "notice", text: "Nothing waits for you." }));
  }

  function row(ask) {
    const done = el("p", { class: "done", role: "status", hidden: true });
    return el("li", { class: "ask" },
      el("h2", { text: `${ask.agent} wants to use ${ask.tool}` }),
      el("p", { class: "about" }, el("a", { href: `#/s/${encodeURIComponent(ask.sessionKey)}`, text: ask.sessionKey }), ` · ${ago(ask.askedMs)} · ${ask.where}`),
      el("pre", { tabindex: "0", text: ask.what }),
      card({ choices: ask.offered }, async (choice, words) => {
        const told = await link.call("asks.answer", { id: ask.id, ...answerOf(choice, words) });
        done.hidden = false;
        done.textContent = told.detail;
      }), done);
  }

  return { element, connected: look, told: ({ event }) => event === "session.ask" && look(), close: () => clearInterval(timer) };
}

/** Return what is answered by a choice: those of a question are numbered. */
function answerOf(choice, words) {
  if (/^\d+$/.test(choice)) return { verdict: "words", reason: choice };
  return { verdict: choice, reason: ["deny", "words"].includes(choice) ? words : "" };
}
