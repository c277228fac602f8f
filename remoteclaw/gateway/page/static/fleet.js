// The view of the fleet: its problems first, then its workers, sessions, agents and adapters.

import { doctorSection } from "./doctor.js";
import { bar, count, el, newId, pauseOf, problemLine, setMessage, size, view } from "./dom.js";
import { age, table, updateAges, updatedRows, withCode } from "./tables.js";
import { nameOf, sessionLink } from "./session_keys.js";
import { deadLetters } from "./dead_letters.js";

/** How often the ages are updated. */
const AGES_MS = 1000;
/** How many dead letters are listed. */
const MAX_LETTERS = 50;

export function fleetView(link) {
  const problem = problemLine();
  const wrong = el("ul", { class: "wrong" });
  const well = el("p", { class: "notice", text: "Nothing, as far as the fleet knows. The doctor checks more." });
  const letters = deadLetters(link);
  const doctor = doctorSection(link, (findings) => { doctorFindings = findings; showProblems(); });
  const showWrong = updatedRows(wrong, { key: ({ subject, text }) => `${subject} ${text}`,
    draw: ({ subject, text }) => [el("strong", { text: subject }), " ", ...withCode(text)] });
  const lanes = table("Lanes", ["Lane", "Workers", "Hints that wait"], {
    key: (lane) => lane.name, empty: "There are none.",
    cells: (lane) => [lane.name, count(lane.workers), count(lane.hints)],
  });
  const workers = table("Workers", ["Worker", "State", "Lanes", "Works on", "Since"], {
    key: (worker) => worker.name, empty: "No worker runs.",
    cells: (worker) => [`process ${worker.pid} on ${worker.host}`, worker.state, worker.lanes.join(", "),
      worker.sessionKey ? sessionLink(worker.sessionKey, worker.title) : "", age(worker.sinceMs)],
  });
  const sessions = table("Sessions at work", ["Session", "Agent", "State", "Messages", "Since"], {
    key: (session) => session.key, empty: "No session has work.",
    cells: (session) => [sessionLink(session.key, session.label ?? session.title ?? undefined), session.agent, stateOf(session), count(session.waiting), age(session.sinceMs)],
  });
  const agents = table("Warm agents", ["Agent", "Session", "Idle", "Memory"], {
    key: (agent) => `${agent.sinceMs} ${agent.sessionKey}`, empty: "No agent waits on the gateway's computer.",
    cells: (agent) => [agent.sessionKey ? nameOf(agent.sessionKey).split(" · ")[0] : "unknown", agent.sessionKey ? sessionLink(agent.sessionKey) : "unknown",
      age(agent.sinceMs), agent.memoryBytes ? size(agent.memoryBytes) : "unknown"],
  });
  const adapters = table("Adapters", ["Account", "Delivers", "Stands by", "Replies that wait", "Problem"], {
    key: (adapter) => adapter.account, empty: "No account is configured.",
    cells: (adapter) => [adapter.name ? `${adapter.account} as ${adapter.name}` : adapter.account,
      adapter.by ? processName(adapter.by) : adapter.state,
      adapter.standbys.length ? adapter.standbys.map((each) => el("div", { text: processName(each) })) : "none",
      count(adapter.waiting), withCode(adapter.problem)],
  });
  const more = el("p", { class: "notice", hidden: true });
  const element = view(bar("Fleet"), el("div", { class: "fleet" }, problem,
    section("Needs attention", wrong, well),
    letters.element,
    section("Lanes", lanes.element), section("Workers", workers.element), section("Sessions at work", sessions.element, more),
    section("Warm agents", agents.element), section("Adapters", adapters.element), doctor));
  let status = null, doctorFindings = [];
  let clock = 0;  // how far the gateway's clock is ahead of this one, in milliseconds

  const fail = (error) => setMessage(problem, error.message);
  const timer = setInterval(() => updateAges(element, Date.now() + clock), AGES_MS);
  let ends = [];

  function onConnected() {
    ends.forEach((end) => end());
    ends = [
      link.follow("fleet.status", {}, (result) => {
        status = result;
        clock = status.atMs - Date.now();
        draw();
        setMessage(problem, "");
      }, fail),
      link.follow("deadletters.list", { limit: MAX_LETTERS }, (dead) => letters.show(dead.letters, dead.count), fail),
    ];
  }

  function close() {
    ends.forEach((end) => end());
    clearInterval(timer);
  }

  function draw() {
    const titles = new Map(status.sessions.map((session) => [session.key, session.label ?? session.title]));
    showProblems();
    lanes.show(status.lanes);
    workers.show(status.workers.map((worker) => ({ ...worker, title: titles.get(worker.sessionKey) ?? undefined })));
    sessions.show(status.sessions);
    setMessage(more, status.busySessions > status.sessions.length ? `${count(status.busySessions)} sessions have work in all.` : "");
    agents.show(status.agents);
    adapters.show(status.adapters);
    updateAges(element, status.atMs);
  }

  /** Show all problems: dead letters, those that the fleet reports, and those that only the doctor has found. */
  function showProblems() {
    const dead = status?.deadLetters ? [{ subject: "dead letters", text: status.deadLetters === 1 ? "One message or reply was given up." : `${count(status.deadLetters)} messages or replies were given up.` }] : [];
    const reported = status?.problems ?? [];
    const isReported = (finding) => reported.some((each) => each.subject === finding.subject);
    const items = [...dead, ...reported, ...doctorFindings.filter((finding) => !isReported(finding))];
    showWrong(items);
    well.hidden = items.length > 0;
  }

  return { element, onConnected, close };
}

function section(title, ...children) {
  const name = newId();
  return el("section", { "aria-labelledby": name }, el("h2", { id: name, text: title }), ...children);
}

function processName({ pid, host }) {
  return `process ${pid} on ${host}`;
}

function stateOf(session) {
  if (session.state === "terminal") return ["is open in a terminal", pauseOf(session)].filter(Boolean).join(", ");
  if (session.postponedUntilMs) return pauseOf(session);
  if (session.state === "scheduled") return "waits for a worker";
  return session.waiting ? "works" : "has just answered";
}
