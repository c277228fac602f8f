// The cards of tool calls and plans. They are updated in place, so that an open card stays open.

import { duration, el } from "./dom.js";
import { updateText } from "./morph.js";

/** The symbol of a plan's step, and its label for screen readers, by the state of the step. */
const MARKS = { completed: ["☑", "done"], in_progress: ["▸", "now"], pending: ["☐", "to do"] };

/** Return a recorded tool call in the form of `session.live`. */
export function callOf({ id, tool, argument, input, text, sinceMs, seconds, isError, at }) {
  return { id: id ?? `${at} ${input}`, tool, argument, input, output: text, since_ms: sinceMs ?? at, seconds: seconds ?? null, is_error: isError };
}

/** Return an empty card of a tool call. */
export function toolCard() {
  const name = el("span", { class: "name" });
  const argument = el("code");
  const state = el("span", { class: "seconds" });
  const input = part("Arguments");
  const output = part("Result");
  const box = el("details", { ontoggle: fill }, el("summary", {}, name, " ", argument, " ", state), input.element, output.element);
  const element = el("li", { class: "tool-use" }, box);
  let call = {};
  let isOver = false;

  function update(changes, isNowOver) {
    const known = Object.entries(changes).filter(([, value]) => value !== undefined && value !== null);
    call = { ...call, ...Object.fromEntries(known) };
    isOver ||= isNowOver || call.seconds !== undefined;
    name.textContent = call.tool ?? "tool";
    argument.textContent = call.argument ?? "";
    element.className = ["tool-use", isOver ? "over" : "runs", call.is_error && "failed"].filter(Boolean).join(" ");
    if (isOver) {
      const took = call.seconds === undefined ? "no result" : duration(call.seconds * 1000);
      state.textContent = call.is_error ? `failed · ${took}` : took;
    }
    fill();
  }

  function fill() {
    if (!box.open) return;
    input.show(readable(call.input ?? ""));
    output.show(call.output ?? "");
  }

  function tick(nowMs) {
    if (!isOver) state.textContent = elapsed(nowMs - call.since_ms);
  }

  return { element, update, tick, end: () => update({}, true) };
}

function part(title) {
  const text = document.createTextNode("");
  const element = el("div", { class: "part", hidden: true }, el("p", { class: "about", text: title }), el("pre", { tabindex: "0" }, text));
  return {
    element,
    show(content) {
      element.hidden = !content;
      updateText(text, content);
    },
  };
}

/** Return JSON arguments as text with a line for each; anything else unchanged. */
function readable(input) {
  let parsed;
  try {
    parsed = JSON.parse(input);
  } catch {
    return input;  // cut, so that it is not valid JSON
  }
  if (parsed === null || typeof parsed !== "object" || Array.isArray(parsed)) return input;
  return Object.entries(parsed).map(([name, value]) => {
    const text = typeof value === "string" ? value : JSON.stringify(value, null, 2);
    return `${name}:${text.includes("\n") ? "\n" : " "}${text}`;
  }).join("\n");
}

/** Return an empty card of a plan. */
export function planCard() {
  const list = el("ol", { class: "plan", "aria-label": "Plan" });
  return {
    element: el("li", { class: "plan-use" }, list),
    update(steps) {
      while (list.children.length > steps.length) list.lastChild.remove();
      steps.forEach(({ text, state }, at) => {
        const row = list.children[at] ?? list.appendChild(el("li", {}, el("span", { role: "img" }), " ", el("span")));
        const [mark, label] = MARKS[state] ?? MARKS.pending;
        row.className = state;
        row.firstChild.textContent = mark;
        row.firstChild.setAttribute("aria-label", label);
        row.lastChild.textContent = text;
      });
    },
  };
}

/** Return an elapsed time as text, in whole seconds. */
export function elapsed(ms) {
  return duration(1000 * Math.max(0, Math.floor(ms / 1000)));
}
