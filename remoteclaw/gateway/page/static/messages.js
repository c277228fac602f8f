// How messages look: what somebody wrote, the files of it, and what a turn took.

import { count, el, moment, rendered, size } from "./dom.js";

/** Return a text as the gateway has made HTML of it, or as it is: of a very long one it makes none. */
export function written({ html, text }) {
  return html ? rendered(html) : el("div", { class: "text plain", text });
}

/** Return an item of a session's record. */
export function item(recorded) {
  if (recorded.role === "tool") {
    return el("li", { class: "tool-use" }, el("details", {},
      el("summary", {}, el("span", { class: "tool", text: recorded.tool ?? "tool" }), " ", el("time", { text: moment(recorded.at) })),
      el("pre", { text: recorded.text })));
  }
  const isAgent = recorded.role === "agent";
  return el("li", { class: `message ${isAgent ? "agent" : "own"}` },
    el("div", { class: "by" },
      el("span", { class: "who", text: isAgent ? "agent" : recorded.from ?? recorded.role }),
      el("time", { text: moment(recorded.at) })),
    written(recorded));
}

/** Return what a turn took, in words; null if nothing is known. */
export function took(usage) {
  const words = [
    usage.duration_s && `${Math.round(usage.duration_s)} s`,
    usage.output_tokens && `${count(usage.output_tokens)} tokens`,
    usage.cost_usd && `$${usage.cost_usd.toFixed(2)}`,
  ].filter(Boolean).join(" · ");
  return words ? el("li", { class: "ended", text: words }) : null;
}

/** Return a file that can be saved: nothing that an agent sends is shown as a page or a picture. */
export function download(sid, file) {
  const link = el("a", { class: "file", href: "#", onclick: async (event) => {
    event.preventDefault();
    const answer = await fetch(`/page/files/${sid}/${file.blob}?size=${file.size}`, { headers: { "X-RemoteClaw-Page": "1" } });
    if (!answer.ok) { link.append(" (not kept any more)"); return; }
    const url = URL.createObjectURL(new Blob([await answer.blob()], { type: "application/octet-stream" }));
    el("a", { href: url, download: file.name }).click();
    setTimeout(() => URL.revokeObjectURL(url), 60_000);
  } }, `${file.name} · ${size(file.size)}`);
  return link;
}
