// The lines of a change, from a text before and after it.

import { el } from "./dom.js";

/** Longer texts, in lines, are compared only at their beginning and end: the rest takes quadratic time. */
const MAX_LINES = 400;

/** Return the element of a change: removed and added lines with their sign, and those between. */
export function diffOf(before, after) {
  const lines = [...compared(before.split("\n"), after.split("\n"))];
  return el("pre", { class: "diff", tabindex: "0" }, lines.map(([sign, text]) => (
    el("span", { class: { "+": "added", "-": "removed" }[sign] ?? null, text: `${sign}${text}` }))));
}

function* compared(before, after) {
  let first = 0, last = 0;
  const shorter = Math.min(before.length, after.length);
  while (first < shorter && before[first] === after[first]) first += 1;
  while (last < shorter - first && before.at(-1 - last) === after.at(-1 - last)) last += 1;
  yield* before.slice(0, first).map((text) => [" ", text]);
  yield* changed(before.slice(first, before.length - last), after.slice(first, after.length - last));
  yield* last ? before.slice(-last).map((text) => [" ", text]) : [];
}

/** Yield the lines of two texts by their longest common subsequence. */
function* changed(before, after) {
  const isLong = Math.max(before.length, after.length) > MAX_LINES;
  const common = isLong ? null : lengths(before, after);
  let one = 0, other = 0;
  while (one < before.length || other < after.length) {
    if (common && one < before.length && other < after.length && before[one] === after[other]) {
      yield [" ", before[one]];
      one += 1;
      other += 1;
    } else if (one < before.length && (other === after.length || !common || common[one + 1][other] >= common[one][other + 1])) yield ["-", before[one++]];
    else yield ["+", after[other++]];
  }
}

/** Return the lengths of the common subsequences of what follows each pair of lines. */
function lengths(before, after) {
  const table = Array.from({ length: before.length + 1 }, () => new Uint16Array(after.length + 1));
  for (let one = before.length - 1; one >= 0; one -= 1) {
    for (let other = after.length - 1; other >= 0; other -= 1) {
      table[one][other] = before[one] === after[other] ? table[one + 1][other + 1] + 1 : Math.max(table[one + 1][other], table[one][other + 1]);
    }
  }
  return table;
}
