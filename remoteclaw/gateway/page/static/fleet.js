// The fleet: what runs, what waits, what went wrong.

import { count, el, fill } from "./dom.js";

export function fleetView(link) {
  const facts = el("dl", { class: "facts" });
  const problem = el("p", { class: "problem", role: "alert", hidden: true });
  const element = el("section", { class: "fleet" },
    el("h1", { text: "Fleet" }), problem, facts);

  async function look() {
    try {
      const status = await link.call("status");
      fill(facts, Object.entries({
        "Workers": status.workers,
        "Busy sessions": status.busySessions,
        "Hints that wait": status.hints,
        "Dead letters": status.deadLetters,
      }).flatMap(([name, value]) => [el("dt", { text: name }), el("dd", { text: count(value) })]));
      problem.hidden = !status.configProblem;
      problem.textContent = status.configProblem ?? "";
    } catch (error) {
      problem.hidden = false;
      problem.textContent = error.message;
    }
  }

  return { element, connected: look };
}
