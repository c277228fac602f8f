// The elements of a message: its head, its text, and the usage of its turn.

import { copy } from "./clipboard.js";
import { count, dollars, duration, el, moment, rendered } from "./dom.js";
import { icon, iconButton } from "./icons.js";

/** The authors of items that are neither a person's nor an agent's. */
const SPEAKERS = { error: "RemoteClaw", notice: "RemoteClaw" };
/** A failure's sentence, the agent's own message in parentheses, what to do, and the reference. */
const FAILURE = /^(.+?)(?: \((\S+: `.+?`)\))?\. (.+?)(?: \(([0-9a-f]{8}-[\d-]+)\))?$/s;
/** A longer notice, in characters, is not centred. */
const MAX_LINE_CHARS = 200;

/** Return the element of a text: its HTML, or the plain text where the gateway rendered none. */
export function messageText({ html, text }) {
  if (!html) return el("div", { class: "text plain", dir: "auto", text });
  const made = rendered(html);
  for (const block of made.querySelectorAll("pre")) framed(block);
  return made;
}

/** Put a block of code into a frame with its language, and a button that copies it. */
function framed(block) {
  const frame = el("div", { class: "code" });
  block.replaceWith(frame);
  frame.append(el("div", { class: "strip" }, el("span", { text: block.dataset.language }),
    iconButton("copy", "Copy the code", null, { class: "copy" })), block);
  block.removeAttribute("data-language");
}

/** Copy the block of code whose button was pressed; for all messages, because live text is changed in place. */
export function onCopyPressed({ target }) {
  const button = target.closest?.(".copy");
  if (button) copy(button.closest(".code").querySelector("pre").textContent, button);
}

/** Return the text of a failure as one sentence and what to do, with details that open. */
export function failure({ html, text }) {
  const [, what, reason, fix, reference] = FAILURE.exec(text) ?? [];
  if (!what) return el("div", { class: "text failure" }, icon("warning"), messageText({ html, text }));
  return el("div", { class: "text failure", dir: "auto" }, icon("warning"),
    el("p", {}, el("strong", {}, coded(`${what}.`)), " ", coded(fix)),
    reason || reference ? el("details", {}, el("summary", { text: "Details" }),
      reason ? el("p", {}, coded(reason)) : null,
      reference ? el("p", {}, "The reference for ", el("code", { text: "remoteclaw sessions trace" }), ": ", el("code", { text: reference })) : null) : null);
}

/** Return a text whose parts between backticks are code. */
function coded(text) {
  return text.split("`").map((part, index) => (index % 2 ? el("code", { text: part }) : part));
}

/** Return the head of a message, which is a heading: the author, and for screen readers the time. */
export function byline(who, at, ...origins) {
  return el("div", { class: "by" },
    el("h2", { class: "who" }, who, el("span", { class: "unseen", text: `, ${moment(at)}` })),
    origins.filter(Boolean).map((text) => el("span", { class: "origin", text })));
}

/** Return the classes of a message. */
export function classesOf({ isOwn, isError, isNotice, card }, text) {
  const isLine = isNotice && text.length <= MAX_LINE_CHARS && !text.includes("\n");
  return ["message", isOwn ? "own" : "agent", isError && "error", isNotice && !isError && "notice", isLine && !isError && "line", card && "card"].filter(Boolean).join(" ");
}

/** Return the element of a message or a notice in a session's record; `agent` is the agent's name. */
export function item(recorded, agent) {
  const { role, text } = recorded, isError = role === "error", isNotice = role === "notice";
  const isOwn = !["agent", "error", "notice"].includes(role);
  const who = (role === "agent" ? agent : SPEAKERS[role]) ?? recorded.from ?? role;
  return el("li", { class: classesOf({ isOwn, isError, isNotice }, text ?? ""), tabindex: "-1" },
    byline(who, recorded.at, recorded.isTerminal && "terminal"),
    isError ? failure(recorded) : messageText(recorded),
    el("div", { class: "marks" }, el("time", { datetime: new Date(recorded.at).toISOString(), text: moment(recorded.at) })));
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
  return text ? el("span", { class: "ended", text }) : null;
}
