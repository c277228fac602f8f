// The view of cron jobs: their schedules and runs, and actions on them.

import { actionRunner, confirmButtons } from "./actions.js";
import { ago, bar, button, duration, el, fill, newId, moment, problemLine, setMessage, stamp, view } from "./dom.js";
import { jobForm } from "./job_form.js";
import { partsOf, sessionLink } from "./session_keys.js";
import { scheduleText } from "./schedule.js";

/** How often the times are updated. */
const TIMES_MS = 30_000;
/** How many runs of a job are listed. */
const MAX_RUNS = 20;
/** The states of runs, as text. */
const OUTCOMES = {
  fired: "runs", done: "done", failed: "failed", dead: "given up after several tries", stopped: "stopped by a person",
  interrupted: "interrupted", dropped: "dropped", unknown: "its end is not known", skipped: "skipped",
};

export function cronView(link) {
  const list = el("ul", { class: "jobs" });
  const problem = problemLine();
  const notice = el("p", { class: "notice" });
  const add = button("New job", () => openForm(link, add));
  const element = view(bar("Cron"), el("div", { class: "cron" }, problem, notice, add, list));
  const rows = new Map();

  let jobs = [], scheduler = "";

  function show() {
    const lacksScheduler = jobs.length && scheduler === "absent";
    problem.hidden = !lacksScheduler;
    if (lacksScheduler) fill(problem, "No scheduler runs, so nothing is run by the clock: start ", el("code", { text: "remoteclaw up" }), ", or ", el("code", { text: "remoteclaw sweep" }), ".");
    setMessage(notice, jobs.length ? "" : "There are no cron jobs. An owner can also ask the agent for one: “each morning at nine …”.");
    add.hidden = !link.scopes.includes("admin");
    for (const [jobId, row] of rows) {
      if (!jobs.some((job) => job.id === jobId)) { row.close(); rows.delete(jobId); }
    }
    for (const job of jobs) {
      if (!rows.has(job.id)) {
        rows.set(job.id, jobRow(link, job.id));
        list.append(rows.get(job.id).element);
      }
      rows.get(job.id).show(job);
    }
  }

  const fail = (error) => setMessage(problem, error.message);
  const timer = setInterval(show, TIMES_MS);
  let ends = [];

  function onConnected() {
    ends.forEach((end) => end());
    ends = [
      link.follow("cron.list", {}, (result) => { jobs = result.jobs; show(); }, fail),
      link.follow("cron.status", {}, (status) => { scheduler = status.scheduler; show(); }, fail),
    ];
    rows.forEach((row) => row.onConnected());
  }

  function close() {
    ends.forEach((end) => end());
    clearInterval(timer);
    rows.forEach((row) => row.close());
  }

  return { element, onConnected, close };
}

/** Show a job's form in place of `opener` until it is closed; then `focused` gets the focus. */
function openForm(link, opener, { job = null, focused = opener } = {}) {
  const form = jobForm(link, { job, onDone() {
    form.replaceWith(opener);
    focused.focus();
  } });
  opener.replaceWith(form);
  form.querySelector("input").focus();
}

/** Return the row of a job, which is updated in place, so that focus and open parts stay. */
function jobRow(link, jobId) {
  const name = el("h2"), when = el("p", { class: "when" }), about = el("p", { class: "about" });
  const facts = el("dl", { class: "facts" });
  const note = el("p", { class: "note", role: "status" });
  const problem = problemLine();
  const runs = el("ol", { class: "runs" });
  const history = el("details", { ontoggle: followRuns }, el("summary", { text: "History" }), runs);
  const run = button("Run now", () => act(begin));
  const pause = button("Pause", () => act(() => link.call("cron.update", { jobId, updates: { enabled: !job.enabled } })));
  const edit = button("Change", () => openForm(link, choices, { job, focused: edit }));
  const others = [run, pause, edit];
  const removing = confirmButtons(["Remove", "Keep", "Remove for good"], () => act(() => link.call("cron.remove", { jobId })), others);
  const choices = el("div", { class: "choices" }, others, removing);
  const act = actionRunner(choices.children, problem);
  const element = el("li", { class: "job" }, name, when, about, facts, choices, note, problem, history);
  let job = null, begun = null, shown = "", unfollow = null;
  let runKey = null;  // the idempotency key of a run, so that repeated attempts start it once

  function show(current) {
    job = current;
    const next = JSON.stringify([job, ago(job.nextRunMs ?? 0), link.scopes]);
    if (next !== shown) draw();
    shown = next;
  }

  function draw() {
    const [agent, channel, chat] = partsOf(job.sessionKey);
    name.textContent = job.name;
    when.textContent = scheduleText(job.schedule);
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
    runKey ??= newId();
    try {
      begun = (await link.call("cron.run", { jobId }, { idempotencyKey: runKey })).runId;
      runKey = null;
    } catch (error) {
      if (!error.retryable) runKey = null;
      throw error;
    }
    note.textContent = "It runs …";
    followRuns();
  }

  /** Follow the runs of the job while they are shown, or while the user waits for the end of one. */
  function followRuns() {
    const isWanted = history.open || begun;
    if (isWanted && !unfollow) unfollow = link.follow("cron.runs", { jobId, limit: MAX_RUNS }, (result) => showRuns(result.runs));
    else if (!isWanted) close();
  }

  function showRuns(listedRuns) {
    const own = listedRuns.find((each) => each.runId === begun);
    if (own && own.status !== "fired") {
      begun = null;
      note.textContent = `The run has ended: ${outcome(own)}.`;
      followRuns();
    }
    fill(runs, listedRuns.length ? listedRuns.map((each) => runRow(each, job.sessionKey)) : el("li", { class: "notice", text: "It has not run yet." }));
  }

  function close() {
    unfollow?.();
    unfollow = null;
  }

  return { element, show, onConnected: () => { close(); followRuns(); }, close: () => { close(); element.remove(); } };
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
    run.isManual ? el("span", { class: "about", text: "started by a person" }) : null,
    run.runId ? sessionLink(sessionKey, "the session") : null);
}
