// What an agent does: a card for each tool that it uses, and its plan. They are brought up to date in
// place: who has opened a card goes on reading.

import { duration, el } from "./dom.js";
import { retext } from "./morph.js";

const MARKS = { completed: ["☑", "done"], in_progress: ["▸", "now"], pending: ["☐", "to do"] };

/** Return a tool's call of a record as live text tells it. */
export function callOf({ id, tool, argument, input, text, sinceMs, seconds, isError, at }) {
  return { id: id ?? `${at} ${input}`, tool, argument, input, output: text, since_ms: sinceMs ?? at, seconds: seconds ?? null, is_error: isError };
}

/** Return an empty card. */
export function toolCard() {
  const name = el("span", { class: "name" });
  const argument = el("code");
  const state = el("span", { class: "seconds" });
  const given = part("Arguments");
  const back = part("Result");
  const box = el("details", { ontoggle: fill }, el("summary", {}, name, " ", argument, " ", state), given.element, back.element);
  const element = el("li", { class: "tool-use" }, box);
  let call = {};
  let isOver = false;

  function update(more, isNowOver) {
    const known = Object.entries(more).filter(([, value]) => value !== undefined && value !== null);
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
    given.show(readable(call.input ?? ""));
    back.show(call.output ?? "");
  }

  function tick(nowMs) {
    if (!isOver) state.textContent = elapsed(nowMs - call.since_ms);
  }

  return { element, update, tick, over: () => update({}, true) };
}

function part(title) {
  const text = document.createTextNode("");
  const element = el("div", { class: "part", hidden: true }, el("p", { class: "about", text: title }), el("pre", { tabindex: "0" }, text));
  return {
    element,
    show(words) {
      element.hidden = !words;
      retext(text, words);
    },
  };
}

/** Return arguments as a person reads them: a line each, and texts as they are. */
function readable(input) {
  let told;
  try {
    told = JSON.parse(input);
  } catch {
    return input;  // only its beginning is known
  }
  if (told === null || typeof told !== "object" || Array.isArray(told)) return input;
  return Object.entries(told).map(([name, value]) => {
    const words = typeof value === "string" ? value : JSON.stringify(value, null, 2);
    return `${name}:${words.includes("\n") ? "\n" : " "}${words}`;
  }).join("\n");
}

/** Return an empty plan. */
export function planCard() {
  const list = el("ol", { class: "plan", "aria-label": "Plan" });
  return {
    element: el("li", { class: "plan-use" }, list),
    update(steps) {
      while (list.children.length > steps.length) list.lastChild.remove();
      steps.forEach(({ text, state }, at) => {
        const row = list.children[at] ?? list.appendChild(el("li", {}, el("span", { role: "img" }), " ", el("span")));
        const [mark, words] = MARKS[state] ?? MARKS.pending;
        row.className = state;
        row.firstChild.textContent = mark;
        row.firstChild.setAttribute("aria-label", words);
        row.lastChild.textContent = text;
      });
    },
  };
}

/** Return how long something has taken that goes on. */
export function elapsed(ms) {
  return duration(1000 * Math.max(0, Math.floor(ms / 1000)));
}
