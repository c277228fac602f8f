// How messages look: what somebody wrote, the files of it, and what a turn took.

import { count, dollars, duration, el, rendered, size, stamp } from "./dom.js";
import { get } from "./rpc.js";
import { callOf, planCard, toolCard } from "./tools.js";

const SPEAKERS = { error: "RemoteClaw", notice: "RemoteClaw" };

/** Return a text as the gateway has made HTML of it, or as it is: of a very long one it makes none. */
export function written({ html, text }) {
  return html ? rendered(html) : el("div", { class: "text plain", dir: "auto", text });
}

/** Return an item of a session's record; `agent` works there. */
export function item(recorded, agent) {
  if (recorded.role === "tool" || recorded.role === "plan") {
    const made = recorded.role === "tool" ? toolCard() : planCard();
    made.update(recorded.role === "tool" ? callOf(recorded) : recorded.steps, true);
    return made.element;
  }
  return el("li", { class: { agent: "message agent", error: "message error", notice: "message notice" }[recorded.role] ?? "message own" },
    el("div", { class: "by" },
      el("h2", { class: "who", text: (recorded.role === "agent" ? agent : SPEAKERS[recorded.role]) ?? recorded.from ?? recorded.role }),
      stamp(recorded.at)),
    written(recorded));
}

/** Return what a turn took, in words; null if nothing is known. */
export function took(usage) {
  const words = [
    usage.durationMs && duration(usage.durationMs),
    usage.outputTokens && `${count(usage.outputTokens)} tokens`,
    usage.costUsd && dollars(usage.costUsd),
  ].filter(Boolean).join(" · ");
  return words ? el("p", { class: "ended", text: words }) : null;
}

/** Return a file that can be saved: nothing that an agent sends is shown as a page or a picture. */
export function download(sid, file) {
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
