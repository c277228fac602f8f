// The rows of tool calls, and plans. They are updated in place, so that an open row stays open.

import { diffOf } from "./diff.js";
import { duration, el } from "./dom.js";
import { icon } from "./icons.js";
import { updateText } from "./morph.js";
import { isChange } from "./tool_words.js";

/** The symbol of a plan's step, and its label for screen readers, by the state of the step. */
const MARKS = { completed: ["☑", "done"], in_progress: ["▸", "now"], pending: ["☐", "to do"] };
/** The arguments with the text before and after a change, as the CLIs name them. */
const CHANGES = [["old_string", "new_string"], ["oldString", "newString"], ["", "content"], ["old_str", "new_str"]];
/** The arguments that name the changed file, which the row shows already. */
const PATHS = ["file_path", "filePath", "absolute_path", "path"];

/** Return a recorded tool call in the form of `session.live`. */
export function callOf({ id, tool, argument, input, text, sinceMs, seconds, isError, at }) {
  return { id: id ?? `${at} ${input}`, tool, argument, input, output: text, since_ms: sinceMs ?? at, seconds: seconds ?? null, is_error: isError };
}

/** Return an empty row of a tool call; `call()` is what is known about it. */
export function toolRow() {
  const name = el("span", { class: "name" });
  const argument = el("code");
  const mark = el("span", { class: "state failed", hidden: true }, icon("failed"));
  const state = el("span", { class: "seconds" });
  const change = el("div");
  const input = part("Arguments");
  const output = part("Result");
  const box = el("details", { ontoggle: fill }, el("summary", {}, icon("right"), name, " ", argument, " ", mark, state), change, input.element, output.element);
  const element = el("li", { class: "tool-use" }, box);
  let call = {};
  let isOver = false;
  let drawn = "";  // the arguments whose change is shown

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
      mark.hidden = !call.is_error;
    }
    fill();
  }

  function fill() {
    if (!box.open) return;
    const given = parsed(call.input ?? ""), pair = given && isChange(call) && CHANGES.find(([before, after]) => typeof given[after] === "string" && (!before || typeof given[before] === "string"));
    if (pair && drawn !== call.input) change.replaceChildren(diffOf(given[pair[0]] ?? "", given[pair[1]]));
    drawn = call.input;
    const rest = pair && Object.fromEntries(Object.entries(given).filter(([key]) => !pair.includes(key) && !PATHS.includes(key)));
    input.show(rest ? readable(rest) : given ? readable(given) : call.input ?? "");
    output.show(call.output ?? "");
  }

  function tick(nowMs) {
    if (!isOver) state.textContent = elapsed(nowMs - call.since_ms);
  }

  return { element, update, tick, end: () => update({}, true), call: () => ({ ...call, isOver }) };
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

/** Return JSON arguments as an object; null if they are cut or no object. */
function parsed(input) {
  try {
    const value = JSON.parse(input);
    return value !== null && typeof value === "object" && !Array.isArray(value) ? value : null;
  } catch {
    return null;
  }
}

/** Return arguments as text with a line for each. */
function readable(given) {
  return Object.entries(given).map(([name, value]) => {
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
