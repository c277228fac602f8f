// Cron jobs: when each is due, how its runs ended, and running, pausing and removing it.

import { actions, twice } from "./actions.js";
import { ago, button, duration, el, fill, id, moment, problemLine, say, stamp } from "./dom.js";
import { jobForm } from "./job_form.js";
import { partsOf, sessionLink } from "./session_keys.js";
import { looking } from "./looking.js";
import { inWords } from "./schedule.js";

const EVERY_MS = 2000;
const RUNS = 20;
const OUTCOMES = {
  fired: "runs", done: "done", failed: "failed", dead: "given up after several tries", stopped: "stopped by a person",
  interrupted: "interrupted", dropped: "dropped", unknown: "its end is not known", skipped: "skipped",
};

export function cronView(link) {
  const list = el("ul", { class: "jobs" });
  const problem = problemLine();
  const notice = el("p", { class: "notice" });
  const add = button("New job", () => openForm(link, add, { done: look }));
  const element = el("section", { class: "cron" }, el("h1", { text: "Cron jobs" }), problem, notice, add, list);
  const rows = new Map();

  async function look() {
    try {
      const [{ jobs }, status] = await Promise.all([link.call("cron.list"), link.call("cron.status")]);
      const isStill = jobs.length && status.scheduler === "absent";
      problem.hidden = !isStill;
      if (isStill) fill(problem, "No scheduler runs, so nothing is run by the clock: start ", el("code", { text: "remoteclaw up" }), ", or ", el("code", { text: "remoteclaw sweep" }), ".");
      say(notice, jobs.length ? "" : "There are no cron jobs. An owner can also ask the agent for one: “each morning at nine …”.");
      add.hidden = !link.scopes.includes("admin");
      for (const [jobId, row] of rows) {
        if (!jobs.some((job) => job.id === jobId)) { row.element.remove(); rows.delete(jobId); }
      }
      for (const job of jobs) {
        if (!rows.has(job.id)) {
          rows.set(job.id, jobRow(link, job.id, look));
          list.append(rows.get(job.id).element);
        }
      }
      await Promise.all(jobs.map((job) => rows.get(job.id).show(job)));
    } catch (error) {
      if (error.code === "UNAVAILABLE") return;  // the status line says that it is away
      say(problem, error.message);
    }
  }

  return { element, connected: look, close: looking(look, EVERY_MS) };
}

/** Show a job's form in the place of what opens it, until it is done. */
function openForm(link, opener, { job = null, back = opener, done }) {
  const form = jobForm(link, { job, done() {
    form.replaceWith(opener);
    back.focus();
    done();
  } });
  opener.replaceWith(form);
  form.querySelector("input").focus();
}

/** Return one job: an element that stays, so that what a person has opened or focused does. */
function jobRow(link, jobId, look) {
  const name = el("h2"), when = el("p", { class: "when" }), about = el("p", { class: "about" });
  const facts = el("dl", { class: "facts" });
  const told = el("p", { class: "told", role: "status" });
  const problem = problemLine();
  const runs = el("ol", { class: "runs" });
  const history = el("details", { ontoggle: () => lookAtRuns() }, el("summary", { text: "History" }), runs);
  const run = button("Run now", () => act(begin));
  const pause = button("Pause", () => act(() => link.call("cron.update", { jobId, updates: { enabled: !job.enabled } })));
  const edit = button("Change", () => openForm(link, choices, { job, back: edit, done: look }));
  const others = [run, pause, edit];
  const removing = twice(["Remove", "Keep", "Remove for good"], () => act(() => link.call("cron.remove", { jobId })), others);
  const choices = el("div", { class: "choices" }, others, removing);
  const act = actions(choices.children, problem, look);
  const element = el("li", { class: "job" }, name, when, about, facts, choices, told, problem, history);
  let job = null, begun = null, shown = "", listed = "";
  let asked = null;  // names a run that may have begun, so that it is begun once however often

  async function show(now) {
    job = now;
    const next = JSON.stringify([now, ago(now.nextRunMs ?? 0), link.scopes]);
    if (next !== shown) draw();
    shown = next;
    if (history.open || begun) await lookAtRuns();
  }

  function draw() {
    const [agent, channel, chat] = partsOf(job.sessionKey);
    name.textContent = job.name;
    when.textContent = inWords(job.schedule);
    fill(about, `${agent} is told: `, el("q", { text: job.message }));
    fill(facts,
      fact("Next", job.nextRunMs ? `${ago(job.nextRunMs)}, ${moment(job.nextRunMs)}` : job.enabled ? "never" : "paused"),
      fact("Last", job.isRunning ? "runs" : lastOf(job)),
      fact("Answers go to", sessionLink(job.sessionKey, `${channel}:${chat}`)));
    element.classList.toggle("paused", !job.enabled);
    pause.textContent = job.enabled ? "Pause" : "Resume";
    choices.hidden = !link.scopes.includes("admin");
  }

  async function begin() {
    asked ??= id();
    try {
      begun = (await link.call("cron.run", { jobId }, { idempotencyKey: asked })).runId;
      asked = null;
    } catch (error) {
      if (!error.retryable) asked = null;
      throw error;
    }
    told.textContent = "It runs …";
  }

  async function lookAtRuns() {
    if (!history.open && !begun) return;
    const found = (await link.call("cron.runs", { jobId, limit: RUNS })).runs;
    const own = found.find((each) => each.runId === begun);
    if (own && own.status !== "fired") {
      begun = null;
      told.textContent = `The run has ended: ${outcome(own)}.`;
    }
    const next = JSON.stringify(found);
    if (next === listed) return;
    listed = next;
    fill(runs, found.length ? found.map((each) => runRow(each, job.sessionKey)) : el("li", { class: "notice", text: "It has not run yet." }));
  }

  return { element, show };
}

function fact(term, value) {
  return [el("dt", { text: term }), el("dd", {}, value)];
}

function lastOf(job) {
  if (!job.lastStatus) return "has not run by the clock yet";
  const failures = job.failures > 1 ? `, ${job.failures} times in a row` : "";
  return [job.lastRunMs && ago(job.lastRunMs), `${OUTCOMES[job.lastStatus] ?? job.lastStatus}${failures}`, job.lastError].filter(Boolean).join(": ");
}

function outcome(run) {
  const took = run.durationMs ? ` in ${duration(run.durationMs)}` : "";
  return `${OUTCOMES[run.status] ?? run.status}${took}${run.detail ? `: ${run.detail}` : ""}`;
}

function runRow(run, sessionKey) {
  return el("li", { class: run.status },
    stamp(run.dueMs),
    el("span", { class: "outcome", text: outcome(run) }),
    run.isManual ? el("span", { class: "about", text: "asked for by a person" }) : null,
    run.runId ? sessionLink(sessionKey, "the session") : null);
}
