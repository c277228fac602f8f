// What an agent does: the tools that it uses, its plan, and its words so far.

import { el } from "./dom.js";
import { written } from "./messages.js";

/** Return what is going on in a turn, as `session.live` tells it. */
export function goingOn(now) {
  const tools = (now.activity ?? []).map((tool) => el("li", { class: tool.seconds === null ? "runs" : "over" },
    el("span", { class: "tool", text: tool.tool }), " ", el("code", { text: tool.argument ?? "" }),
    tool.seconds === null ? null : el("span", { class: "seconds", text: ` ${Math.round(tool.seconds)} s` })));
  const plan = (now.plan ?? []).map((step) => el("li", { class: step.state, text: step.text }));
  return [
    tools.length ? el("ul", { class: "tools" }, tools) : null,
    plan.length ? el("ol", { class: "plan" }, plan) : null,
    now.html || now.text ? written(now) : el("p", { class: "thinking", text: "…" }),
    el("p", { class: "since", text: `${Math.max(0, Math.round((now.at - now.since_ms) / 1000)) || 0} s` }),
  ];
}
