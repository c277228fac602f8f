// What agents do in a conversation, turn by turn: from live text while it goes on, then as recorded.

import { callOf, planCard, toolCard } from "./tools.js";

/** Return it; `put(element, at)` puts what is new in its place among the messages. */
export function doings(put) {
  const shown = new Map();  // by turn and call

  function card(turn, id, at, make) {
    const key = `${make.name} ${turn} ${id}`;
    if (!shown.has(key)) shown.set(key, { turn, ...make() });
    const one = shown.get(key);
    if (!one.element.parentNode) put(one.element, at);
    return one;
  }

  /** Show what `session.live` tells of a turn. */
  function live({ turn, tools = [], plan = [], since_ms }) {
    if (plan.length) card(turn, "", since_ms, planCard).update(plan);
    for (const call of tools) card(turn, call.id, call.since_ms, toolCard).update(call, false);
  }

  /** Show what is recorded of tools and plans. */
  function recorded(items) {
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

  /** Count the seconds of what runs. */
  function tick(nowMs) {
    for (const one of shown.values()) one.tick?.(nowMs);
  }

  /** Take that no tool runs any more: of this turn, or of any. */
  function over(turn = null) {
    for (const one of shown.values()) if (turn === null || one.turn === turn) one.over?.();
  }

  return { live, recorded, tick, over, clear: () => shown.clear() };
}
