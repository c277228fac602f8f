// The tool calls and plans of a conversation's turns: live while a turn runs, then as recorded.
// All calls of a turn are one line, which opens.

import { duration, el } from "./dom.js";
import { icon, stateMark } from "./icons.js";
import { callOf, elapsed, planCard, toolRow } from "./tool_cards.js";
import { past, present } from "./tool_words.js";

/** Return the lines of the turns' tools, and their plans; `insert(element, at)` inserts a new one among the messages. */
export function turnActivity(insert) {
  const plans = new Map(), runs = new Map();  // by turn

  function planOf(turn, at) {
    if (!plans.has(turn)) plans.set(turn, planCard());
    return placed(plans.get(turn), at);
  }

  function runOf(turn, at) {
    if (!runs.has(turn)) runs.set(turn, toolRun());
    return placed(runs.get(turn), at);
  }

  function placed(made, at) {
    if (!made.element.parentNode) insert(made.element, at);
    return made;
  }

  /** Show the tool calls and the plan of a `session.live`. */
  function showLive({ turn, tools = [], plan = [], since_ms }) {
    if (plan.length) planOf(turn, since_ms).update(plan);
    for (const call of tools) runOf(turn, call.since_ms).update(call, false);
  }

  /** Show the tool calls and plans of a session's record. */
  function showRecorded(items) {
    for (const item of items) {
      if (item.role === "tool") {
        const call = callOf(item);
        runOf(item.turn, call.since_ms).update(call, true);
      } else if (item.role === "plan") {
        const first = items.find((other) => other.role === "tool" && other.turn === item.turn);
        planOf(item.turn, first?.sinceMs ?? item.at).update(item.steps);
      }
    }
  }

  /** Update the elapsed seconds of running tools. */
  function tick(nowMs) {
    for (const each of runs.values()) each.tick(nowMs);
  }

  /** Mark the tools of a turn as ended; null stands for all turns. */
  function end(turn = null) {
    for (const [name, each] of runs) if (turn === null || name === turn) each.end();
  }

  function clear() {
    plans.clear();
    runs.clear();
  }

  return { showLive, showRecorded, tick, end, clear };
}

/** Return the empty line of a turn's tool calls. */
function toolRun() {
  const rows = new Map();  // by the id of the call
  const mark = el("span", { class: "mark" }), words = el("span", { class: "words", dir: "auto" }), took = el("span", { class: "seconds" });
  const list = el("ol", { class: "tools", "aria-label": "Tools" });
  const element = el("li", { class: "tool-run" },
    el("details", {}, el("summary", {}, mark, words, took, icon("right")), list));
  let shownState = "";

  function update(call, isOver) {
    if (!rows.has(call.id)) rows.set(call.id, toolRow());
    const row = rows.get(call.id);
    row.update(call, isOver);
    if (!row.element.parentNode) insertByTime(row);
    show();
  }

  function insertByTime(row) {
    const later = [...rows.values()].filter((each) => each.element.parentNode && each.call().since_ms > row.call().since_ms);
    const [next] = later.sort((one, other) => one.call().since_ms - other.call().since_ms);
    list.insertBefore(row.element, next?.element ?? null);
  }

  function show() {
    const calls = [...list.children].map((each) => [...rows.values()].find((row) => row.element === each).call());
    const running = calls.filter((call) => !call.isOver), failed = calls.filter((call) => call.is_error).length;
    const text = running.length ? present(running.at(-1)) : past(calls);
    if (words.textContent !== text) words.textContent = text;
    const state = running.length ? "works" : failed === calls.length ? "failed" : "";
    element.className = ["tool-run", running.length ? "runs" : "over", failed && "failed"].filter(Boolean).join(" ");
    if (state !== shownState) mark.replaceChildren(...(state ? [stateMark(state, state === "works" ? "works: " : "failed: ")] : []));
    shownState = state;
    if (running.length) return;
    const ends = calls.map((call) => call.since_ms + 1000 * (call.seconds ?? 0));
    const ms = Math.max(...ends) - Math.min(...calls.map((call) => call.since_ms));
    took.textContent = [failed && failed < calls.length && `${failed} failed`, ms >= 50 && duration(ms)].filter(Boolean).join(" · ");
  }

  function tick(nowMs) {
    for (const row of rows.values()) row.tick(nowMs);
    const running = [...rows.values()].map((row) => row.call()).filter((call) => !call.isOver).at(-1);
    if (running) took.textContent = elapsed(nowMs - running.since_ms);
  }

  function end() {
    for (const row of rows.values()) row.end();
    if (rows.size) show();
  }

  return { element, update, tick, end };
}
