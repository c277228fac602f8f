// The elements of a message: its text, its files, and the usage of its turn.

import { count, dollars, duration, el, rendered, size, stamp } from "./dom.js";
import { get } from "./rpc.js";
import { callOf, planCard, toolCard } from "./tool_cards.js";

/** The authors of items that are neither a person's nor an agent's. */
const SPEAKERS = { error: "RemoteClaw", notice: "RemoteClaw" };

/** Return the element of a text: its HTML, or the plain text where the gateway rendered none. */
export function messageText({ html, text }) {
  return html ? rendered(html) : el("div", { class: "text plain", dir: "auto", text });
}

/** Return the element of an item of a session's record; `agent` is the agent's name. */
export function item(recorded, agent) {
  if (recorded.role === "tool" || recorded.role === "plan") {
    const made = recorded.role === "tool" ? toolCard() : planCard();
    made.update(recorded.role === "tool" ? callOf(recorded) : recorded.steps, true);
    return made.element;
  }
  return el("li", { class: { agent: "message agent", error: "message error", notice: "message notice" }[recorded.role] ?? "message own" },
    el("div", { class: "by" },
      el("h2", { class: "who", text: (recorded.role === "agent" ? agent : SPEAKERS[recorded.role]) ?? recorded.from ?? recorded.role }),
      recorded.isTerminal ? el("span", { class: "origin", text: "terminal" }) : null,
      stamp(recorded.at)),
    messageText(recorded));
}

/** Yield each item of a record with a unique name, also for items of the same time. */
export function* keyed(items) {
  const counts = {};
  for (const recorded of items) {
    const name = `${recorded.role} ${recorded.at}`;
    counts[name] = (counts[name] ?? 0) + 1;
    yield [`${name} ${counts[name]}`, recorded];
  }
}

/** Return a line with the duration, tokens and cost of a turn; null if none is known. */
export function usageLine(usage) {
  const text = [
    usage.durationMs && duration(usage.durationMs),
    usage.outputTokens && `${count(usage.outputTokens)} tokens`,
    usage.costUsd && dollars(usage.costUsd),
  ].filter(Boolean).join(" · ");
  return text ? el("p", { class: "ended", text }) : null;
}

/** Return a link that downloads a file. Files of agents are never shown as a page or a picture. */
export function fileLink(sid, file) {
  const link = el("a", { class: "file", href: "#", onclick: async (event) => {
    event.preventDefault();
    const answer = await get(`/page/files/${sid}/${file.blob}?size=${file.size}`);
    if (!answer.ok) { link.append(" (not kept any more)"); return; }
    const url = URL.createObjectURL(new Blob([await answer.blob()], { type: "application/octet-stream" }));
    el("a", { href: url, download: file.name }).click();
    setTimeout(() => URL.revokeObjectURL(url), 60_000);
  } }, `${file.name} · ${size(file.size)}`);
  return link;
}
