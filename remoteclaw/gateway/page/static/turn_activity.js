// The tool calls and plans of a conversation's turns: live while a turn runs, then as recorded.

import { callOf, planCard, toolCard } from "./tool_cards.js";

/** Return the cards of tool calls and plans; `insert(element, at)` inserts a new one among the messages. */
export function turnActivity(insert) {
  const cards = new Map();  // by kind, turn and call

  function card(turn, id, at, make) {
    const key = `${make.name} ${turn} ${id}`;
    if (!cards.has(key)) cards.set(key, { turn, ...make() });
    const found = cards.get(key);
    if (!found.element.parentNode) insert(found.element, at);
    return found;
  }

  /** Show the tool calls and the plan of a `session.live`. */
  function showLive({ turn, tools = [], plan = [], since_ms }) {
    if (plan.length) card(turn, "", since_ms, planCard).update(plan);
    for (const call of tools) card(turn, call.id, call.since_ms, toolCard).update(call, false);
  }

  /** Show the tool calls and plans of a session's record. */
  function showRecorded(items) {
    for (const item of items) {
      if (item.role === "tool") {
        const call = callOf(item);
        card(item.turn, call.id, call.since_ms, toolCard).update(call, true);
      } else if (item.role === "plan") {
        const first = items.find((other) => other.role === "tool" && other.turn === item.turn);
        card(item.turn, "", first?.sinceMs ?? item.at, planCard).update(item.steps);
      }
    }
  }

  /** Update the elapsed seconds of running tools. */
  function tick(nowMs) {
    for (const each of cards.values()) each.tick?.(nowMs);
  }

  /** Mark the tools of a turn as ended; null stands for all turns. */
  function end(turn = null) {
    for (const each of cards.values()) if (turn === null || each.turn === turn) each.end?.();
  }

  return { showLive, showRecorded, tick, end, clear: () => cards.clear() };
}
