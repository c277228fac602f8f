// The view of cron jobs: their schedules and runs, and actions on them.

import { actionRunner, confirmButtons } from "./actions.js";
import { ago, bar, button, duration, el, fill, newId, problemLine, setMessage, stamp, view } from "./dom.js";
import { emptyState } from "./empty_state.js";
import { icon, stateMark } from "./icons.js";
import { jobForm, timeIn } from "./job_form.js";
import { isOwn, partsOf, sessionLink } from "./session_keys.js";

/** How often the times are updated. */
const TIMES_MS = 30_000;
/** How many runs of a job are listed. */
const MAX_RUNS = 20;
/** The ends of runs, as text. */
const OUTCOMES = {
  fired: "runs", done: "done", failed: "failed", dead: "given up after several tries", stopped: "stopped by a person",
  interrupted: "interrupted", dropped: "dropped", unknown: "its end is not known", skipped: "skipped",
};

/** The states of a last run that are failures. */
const FAILED = ["failed", "dead"];

export function cronView(link) {
  const list = el("ul", { class: "jobs" });
  const problem = problemLine();
  const add = button([icon("add"), "New job"], () => openNew(), { hidden: true });
  const first = button("New job", () => openNew(), { class: "primary", hidden: true });
  const nothing = emptyState("cron", "A job writes a message to an agent at set times.",
    "Its answer goes to the conversation that you choose. An owner can also ask an agent in any chat: “each morning at nine, tell me …”.", first);
  const place = el("div", { class: "form-place" });
  nothing.hidden = true;
  const element = view(bar("Cron", add), el("div", { class: "cron data" }, problem, place, nothing, list));
  const rows = new Map();

  let jobs = null, scheduler = "";

  function show() {
    if (!jobs || !scheduler) return;  // both are shown together, so that nothing moves
    const lacksScheduler = jobs.length && scheduler === "absent";
    problem.hidden = !lacksScheduler;
    if (lacksScheduler) fill(problem, "No scheduler runs, so nothing is run by the clock: start ", el("code", { text: "remoteclaw up" }), ", or ", el("code", { text: "remoteclaw sweep" }), ".");
    const mayChange = link.scopes.includes("admin"), hasForm = place.hasChildNodes();
    const hadFocus = [add, first].includes(document.activeElement);
    nothing.hidden = jobs.length > 0 || hasForm;
    first.hidden = !mayChange;
    add.hidden = !mayChange || hasForm || !jobs.length;
    if (hadFocus) (add.hidden ? first : add).focus();  // the first job has arrived, or the last one is gone
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

  /** Show the form of a new job; when it is closed, the button that is then shown gets the focus. */
  function openNew() {
    const form = jobForm(link, { onDone() {
      fill(place);
      show();
      (add.hidden ? first : add).focus();
    } });
    fill(place, form);
    show();
    form.querySelector("input").focus();
  }

  const fail = (error) => setMessage(problem, error.message);
  const timer = setInterval(show, TIMES_MS);
  let ends = [];

  function onConnected() {
    ends.forEach((end) => end());
    ends = [
      link.follow("cron.list", {}, (result) => { jobs = result.jobs; show(); }, fail),
      link.follow("cron.status", {}, (status) => { scheduler = status.scheduler; show(); }, (error) => { scheduler = "unknown"; show(); fail(error); }),
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

/** Return the row of a job, which is updated in place, so that focus and open parts stay. */
function jobRow(link, jobId) {
  const mark = el("span", { class: "mark" }), name = el("h2"), next = el("p", { class: "next" }), when = el("p", { class: "when" });
  const message = el("p", { class: "told" }), last = el("p", { class: "last" });
  const note = el("p", { class: "note", role: "status" });
  const problem = problemLine();
  const runs = el("ol", { class: "runs" });
  const history = el("details", { ontoggle: followRuns }, el("summary", { text: "History" }), runs);
  const run = button("Run now", () => act(begin));
  const pause = button("Pause", () => act(() => link.call("cron.update", { jobId, updates: { enabled: !job.enabled } })));
  const edit = button("Change", change);
  const others = [run, pause, edit];
  const removing = confirmButtons(["Remove", "Keep", "Remove for good"], () => act(() => link.call("cron.remove", { jobId })), others);
  const choices = el("div", { class: "choices" }, others, removing);
  const act = actionRunner(choices.children, problem);
  const element = el("li", { class: "job" }, el("div", { class: "job-head" }, mark, name, next), when, message, last, choices, note, problem, history);
  let job = null, begun = null, shown = "", unfollow = null;
  let runKey = null;  // the idempotency key of a run, so that repeated attempts start it once

  function show(current) {
    job = current;
    const drawn = JSON.stringify([job, ago(job.nextRunMs ?? 0), ago(job.lastRunMs ?? 0), link.scopes]);
    if (drawn !== shown) draw();
    shown = drawn;
  }

  function draw() {
    const [agent, channel, chat] = partsOf(job.sessionKey);
    fill(mark, markOf(job));
    name.textContent = job.name;
    fill(next, job.nextRun ? [el("time", { datetime: job.nextRun, text: timeIn(job.nextRun, job.zone) }), el("span", { class: "about", text: ` ${job.zone} · ${ago(job.nextRunMs)}` })]
      : el("span", { class: "about", text: job.enabled ? "not due again" : "paused" }));
    fill(when, job.words, el("span", { class: "about" }, ` · ${agent} answers in `, sessionLink(job.sessionKey, isOwn(job.sessionKey) ? "your conversation" : `${channel} ${chat}`)));
    fill(message, el("q", { text: job.message }));
    fill(last, lastOf(job));
    last.classList.toggle("failed", FAILED.includes(job.lastStatus));
    element.classList.toggle("rests", !job.enabled);
    pause.textContent = job.enabled ? "Pause" : "Resume";
    choices.hidden = !link.scopes.includes("admin");
  }

  /** Show the job's form in place of its buttons until it is closed. */
  function change() {
    const form = jobForm(link, { job, onDone() {
      form.replaceWith(choices);
      edit.focus();
    } });
    choices.replaceWith(form);
    form.querySelector("input").focus();
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

/** Return the state of a job as a shape. */
function markOf(job) {
  if (job.isRunning) return stateMark("works", "runs:");
  if (FAILED.includes(job.lastStatus)) return stateMark("failed", "the last run failed:");
  if (!job.enabled) return el("span", { class: "state", title: "paused" }, icon("pause"), el("span", { class: "unseen", text: "paused:" }));
  if (job.lastStatus === "done") return el("span", { class: "state well", title: "done" }, icon("check"), el("span", { class: "unseen", text: "the last run is done:" }));
  return stateMark("waits", "waits:");
}

function lastOf(job) {
  if (!job.lastStatus) return "It has not run by the clock yet.";
  const failures = job.failures > 1 ? `, ${job.failures} times in a row` : "";
  const took = job.lastDurationMs && job.lastStatus === "done" ? ` in ${duration(job.lastDurationMs)}` : "";
  const text = `Last run: ${OUTCOMES[job.lastStatus] ?? job.lastStatus}${took}${failures}${job.lastRunMs ? `, ${ago(job.lastRunMs)}` : ""}`;
  return job.lastError ? `${text}: ${job.lastError}` : `${text}.`;
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
