// A request to people: what it is for, its choices, and who has answered what.

import { ago, busy, button, el, moment, problemLine, rendered, say } from "./dom.js";

const CHANGE_LABELS = { once: "Approve", deny: "Reject" };
const WORDS = {
  tool: "Why not: the agent is told",
  question: "Your own words",
  plan: "What should be different",
  change: "Why not: the agent is told",
};
const DONE = {
  tool: { once: "allowed it once", conversation: "allowed it for this conversation", deny: "denied it" },
  question: { words: "answered", deny: "left it open" },
  plan: { once: "approved it", edits: "approved it, with all changes of files in the workspace", deny: "did not approve it", words: "wants it to be different" },
  change: { once: "approved it", deny: "rejected it" },
};

/** Return what an agent wants, as a heading. */
export function headline({ agent, kind, tool }) {
  return {
    tool: `${agent} wants to use ${tool}`,
    question: `${agent} asks`,
    plan: `${agent} wants to go on with this plan`,
    change: `${agent} wants to change the configuration`,
  }[kind];
}

/** Return what would be done: a plan as its author meant it, a change as a diff. */
export function body(ask) {
  if (ask.kind === "plan") return ask.html ? rendered(ask.html) : el("div", { class: "text plain", text: ask.what });
  if (ask.kind === "question") return el("div", { class: "text plain", text: questionOf(ask).text });
  const isDiff = ask.kind === "change";
  return el("pre", { tabindex: "0", class: isDiff ? "diff" : null },
    isDiff ? ask.what.split("\n").map((line) => el("span", { class: { "+": "added", "-": "removed" }[line[0]], text: `${line}\n` })) : ask.what);
}

/** Return a question without its numbered choices, and what each of these means. */
function questionOf({ what, choices }) {
  const lines = what.split("\n");
  const places = (choices ?? []).map((choice, index) => lines.findLastIndex((line) => line.startsWith(`${index + 1}. ${choice}`)));
  const first = Math.min(...places.filter((place) => place >= 0), lines.length);
  return { text: lines.slice(0, first).join("\n"), meanings: places.map((place) => lines[place]?.replace(/^\d+\. /, "")) };
}

/** Return until when it can be answered, or its turn waits. */
export function deadline(ask) {
  if (!ask.untilMs) return "";
  const until = `${moment(ask.untilMs)}, ${ago(ask.untilMs)}`;
  if (ask.kind === "change") return `It expires at ${until}.`;
  return ask.state === "open" ? `The agent waits until ${until}; it can be answered for a day.` : `The agent has stopped waiting and is woken by an answer, until ${until}.`;
}

/** Return who has answered what and when, or why nobody can any more. */
export function outcome(ask) {
  const { answer, change, state, kind } = ask;
  if (change?.became) return change.became;
  if (!answer || state === "void") return state === "expired" ? "Nobody answered in time." : "Nothing waits for an answer any more: the turn is over, or it was stopped.";
  const words = answer.words ? `: “${answer.words}”` : ".";
  const told = `${answer.name} ${DONE[kind][answer.verdict] ?? answer.verdict} at ${moment(answer.atMs)}${words}`;
  return ["granted", "used"].includes(state) ? `${told} The agent is told to go on.` : told;
}

/**
 * Return the choices of a request; `answer(verdict, words)` resolves once the gateway has taken it.
 * Until then they stay, and can't be used twice.
 */
export function choices(ask, answer) {
  const { kind } = ask;
  const isOpen = kind === "question" && ask.isMultiple;
  const problem = problemLine();
  const words = el("input", { type: "text", "aria-label": "Your words", placeholder: WORDS[kind] });
  const offered = ask.offered.filter(([verdict]) => !(isOpen && isNumber(verdict)));
  const meanings = kind === "question" ? questionOf(ask).meanings : [];
  let isTaken = false;
  const boxes = isOpen ? ask.choices.map((choice, index) => el("label", { class: "check" }, el("input", { type: "checkbox", value: choice }), meanings[index] ?? choice)) : [];
  const send = kind === "question" ? el("button", { type: "submit", disabled: true }, "Send") : null;
  const element = el("form", { class: "choices", "aria-label": "Answer", onsubmit: submit, oninput: () => { if (send) send.disabled = !inWords(); } },
    boxes.length ? el("fieldset", { class: "checks" }, el("legend", { text: "Choose any" }), boxes) : null,
    offered.map(([verdict, label]) => button((kind === "change" && CHANGE_LABELS[verdict]) || (isNumber(verdict) && meanings[verdict - 1]) || label,
      () => choose(verdict), { class: ["once", "deny"].includes(verdict) ? verdict : null })),
    el("div", { class: "own" }, words, send), problem);

  function inWords() {
    return [...boxes.map((box) => box.firstChild).filter((box) => box.checked).map((box) => box.value), words.value.trim()].filter(Boolean).join(", ");
  }

  function submit(event) {
    event.preventDefault();
    if (kind === "question" ? inWords() : words.value.trim()) choose({ question: "words", plan: "words" }[kind] ?? "deny");
  }

  function choose(verdict) {
    if (isNumber(verdict) && ask.choices) return take("words", ask.choices[verdict - 1]);
    return take(verdict, verdict === "words" ? inWords() : verdict === "deny" ? words.value.trim() : "");
  }

  function take(verdict, given) {
    return busy(element.querySelectorAll("button"), async () => {
      if (isTaken) return;
      say(problem, "");
      try {
        await answer(verdict, given);
        isTaken = true;
      } catch (error) {
        say(problem, error.retryable ? `Perhaps not taken: ${error.message} Answer again: the first answer counts.` : error.message);
      }
    });
  }

  return element;
}

function isNumber(verdict) {
  return /^\d+$/.test(verdict);
}
