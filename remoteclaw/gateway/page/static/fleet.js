// The fleet: what runs, what waits, what went wrong.

import { ago, count, el, fill } from "./dom.js";

export function fleetView(link) {
  const facts = el("dl", { class: "facts" });
  const cron = el("ul", { class: "cron" });
  const problem = el("p", { class: "problem", role: "alert", hidden: true });
  const element = el("section", { class: "fleet" },
    el("h1", { text: "Fleet" }), problem, facts,
    el("h2", { text: "Cron jobs" }), cron);

  async function look() {
    try {
      const [status, jobs] = await Promise.all([link.call("status"), link.call("cron.list")]);
      fill(facts, Object.entries({
        "Workers": status.workers,
        "Busy sessions": status.busySessions,
        "Hints that wait": status.hints,
        "Dead letters": status.deadLetters,
      }).flatMap(([name, value]) => [el("dt", { text: name }), el("dd", { text: count(value) })]));
      problem.hidden = !status.configProblem;
      problem.textContent = status.configProblem ?? "";
      fill(cron, jobs.jobs.length ? jobs.jobs.map(row) : el("li", { class: "notice", text: "There are none." }));
    } catch (error) {
      problem.hidden = false;
      problem.textContent = error.message;
    }
  }

  function row(job) {
    return el("li", {}, el("strong", { text: job.name ?? job.id }), ` ${job.schedule ?? ""} `,
      job.nextRunMs ? el("span", { text: ago(job.nextRunMs) }) : null);
  }

  return { element, connected: look };
}
