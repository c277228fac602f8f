// A request to people: its heading, content, choices and outcome.

import { ago, whileBusy, button, el, moment, problemLine, rendered, setMessage } from "./dom.js";

/** The labels of the choices of a configuration change. */
const CHANGE_LABELS = { once: "Approve", deny: "Reject" };
/** The icons of requests, by kind or tool. */
const ICONS = { question: "chat", plan: "file", change: "edit", budget: "usage", Bash: "terminal", WebFetch: "link" };
/** The keys of the choices that can be chosen by one. */
const KEYS = { once: "A", deny: "D" };
/** The placeholders of the text field, by kind. */
const PLACEHOLDERS = {
  tool: "Why not: the agent is told",
  question: "Your own words",
  plan: "What should be different",
  change: "Why not: the agent is told",
  budget: "Why not",
};
/** What the person who answered did, by kind and verdict. */
const DONE = {
  tool: { once: "allowed it once", conversation: "allowed it for this conversation", deny: "denied it" },
  question: { words: "answered", deny: "left it open" },
  plan: { once: "approved it", edits: "approved it, with all changes of files in the workspace", deny: "did not approve it", words: "wants it to be different" },
  change: { once: "approved it", deny: "rejected it" },
  budget: { once: "allowed half as much again", conversation: "lifted the limit", deny: "stopped it" },
};

/** Return the heading of a request. */
export function headline({ agent, kind, tool }) {
  return {
    tool: `${agent} wants to use ${tool}`,
    question: `${agent} requests`,
    plan: `${agent} wants to go on with this plan`,
    change: `${agent} wants to ${tool === "memory_write" ? "remember something" : "change the configuration"}`,
    budget: "A budget is used up",
  }[kind];
}

/** Return a request in one line. */
export function briefly(request) {
  return request.kind === "tool" ? `${request.tool}: ${request.what}`.slice(0, 200).replace(/\s+/g, " ") : headline(request);
}

/** Return the content of a request: a plan as HTML, a change as a diff. */
export function body(request) {
  if (request.kind === "plan") return request.html ? rendered(request.html) : el("div", { class: "text plain", text: request.what });
  if (request.kind === "budget") return el("div", { class: "text plain", text: request.what });
  if (request.kind === "question") return el("div", { class: "text plain", text: questionOf(request).text });
  const isChange = isDiff(request);
  return el("pre", { tabindex: "0", class: isChange ? "diff" : null },
    isChange ? request.what.split("\n").map((line) => el("span", { class: { "+": "added", "-": "removed", "@": "hunk" }[line[0]], text: line })) : request.what);
}

/** Whether the content of a request is a change, of the configuration or of a file. */
function isDiff({ kind, tool, what }) {
  return kind === "change" ? tool !== "memory_write" : kind === "tool" && tool !== "Bash" && /^@@ /m.test(what);
}

/** Return the name of the icon of a request. */
export function iconOf(request) {
  return ICONS[request.kind] ?? (isDiff(request) ? "edit" : ICONS[request.tool] ?? "asks");
}

/** Return the text of a question without its numbered choices, and the lines of these. */
function questionOf({ what, choices }) {
  const lines = what.split("\n");
  const indexes = (choices ?? []).map((choice, index) => lines.findLastIndex((line) => line.startsWith(`${index + 1}. ${choice}`)));
  const first = Math.min(...indexes.filter((index) => index >= 0), lines.length);
  return { text: lines.slice(0, first).join("\n"), meanings: indexes.map((index) => lines[index]?.replace(/^\d+\. /, "")) };
}

/** Return until when a request can be answered, as text. */
export function deadline(request) {
  if (!request.untilMs) return "";
  const until = `${moment(request.untilMs)}, ${ago(request.untilMs)}`;
  if (request.kind === "change") return `It expires at ${until}.`;
  if (request.kind === "budget") return `Messages wait until ${until}.`;
  return request.state === "open" ? `The agent waits until ${until}; it can be answered for a day.` : `The agent has stopped waiting and is woken by an answer, until ${until}.`;
}

/** Return who answered what and when, or why it can't be answered any more. */
export function outcome(request) {
  const { answer, change, state, kind } = request;
  if (change?.became) return change.became;
  if (!answer || state === "void") return state === "expired" ? "Nobody answered in time." : "Nothing waits for an answer any more: the turn is over, or it was stopped.";
  const quoted = answer.words ? `: “${answer.words}”` : ".";
  const sentence = `${answer.name} ${DONE[kind][answer.verdict] ?? answer.verdict} at ${moment(answer.atMs)}${quoted}`;
  return kind !== "budget" && ["granted", "used"].includes(state) ? `${sentence} The agent is told to go on.` : sentence;
}

/**
 * Return the choices of a request; `answer(verdict, text)` resolves once the gateway has accepted the
 * answer. Until then the buttons are off.
 */
export function choices(request, answer) {
  const { kind } = request;
  const isMultiple = kind === "question" && request.isMultiple;
  const problem = problemLine();
  const field = el("input", { type: "text", "aria-label": "Your words", placeholder: PLACEHOLDERS[kind] });
  const offered = request.offered.filter(([verdict]) => !(isMultiple && isNumber(verdict)));
  const meanings = kind === "question" ? questionOf(request).meanings : [];
  let isAnswered = false;
  const boxes = isMultiple ? request.choices.map((choice, index) => el("label", { class: "check" }, el("input", { type: "checkbox", value: choice }), meanings[index] ?? choice)) : [];
  const send = kind === "question" ? el("button", { type: "submit", disabled: true }, "Send") : null;
  const element = el("form", { class: "choices", onsubmit: submit, oninput: () => { if (send) send.disabled = !enteredText(); } },
    boxes.length ? el("fieldset", { class: "checks" }, el("legend", { text: "Choose any" }), boxes) : null,
    offered.map(([verdict, label]) => button((kind === "change" && CHANGE_LABELS[verdict]) || (isNumber(verdict) && meanings[verdict - 1]) || label,
      () => choose(verdict), { class: { once: "primary", deny: "danger" }[verdict], "aria-keyshortcuts": kind === "question" ? null : KEYS[verdict] })),
    el("div", { class: "own" }, field, send), problem);

  function enteredText() {
    return [...boxes.map((box) => box.firstChild).filter((box) => box.checked).map((box) => box.value), field.value.trim()].filter(Boolean).join(", ");
  }

  function submit(event) {
    event.preventDefault();
    if (kind === "question" ? enteredText() : field.value.trim()) choose({ question: "words", plan: "words" }[kind] ?? "deny");
  }

  function choose(verdict) {
    if (isNumber(verdict) && request.choices) return submitAnswer("words", request.choices[verdict - 1]);
    return submitAnswer(verdict, verdict === "words" ? enteredText() : verdict === "deny" ? field.value.trim() : "");
  }

  function submitAnswer(verdict, text) {
    return whileBusy(element.querySelectorAll("button"), async () => {
      if (isAnswered) return;
      setMessage(problem, "");
      try {
        await answer(verdict, text);
        isAnswered = true;
      } catch (error) {
        setMessage(problem, error.retryable ? `Perhaps not taken: ${error.message} Answer again: the first answer counts.` : error.message);
      }
    });
  }

  return element;
}

function isNumber(verdict) {
  return /^\d+$/.test(verdict);
}
