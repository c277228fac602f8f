// The fleet: what is wrong first, then what runs, waits and stands by.

import { doctorPart } from "./doctor.js";
import { count, el, id, moment, problemLine, say, size } from "./dom.js";
import { aged, coded, kept, since, table } from "./kept.js";
import { nameOf, sessionLink } from "./session_keys.js";
import { lettersList } from "./letters.js";
import { looking } from "./looking.js";

const EVERY_MS = 3000;
const SHOWN = 50;

export function fleetView(link) {
  const looked = el("p", { class: "about" });
  const problem = problemLine();
  const wrong = el("ul", { class: "wrong" });
  const well = el("p", { class: "notice", text: "Nothing, as far as the fleet knows. The doctor looks further." });
  const letters = lettersList(link, look);
  const doctor = doctorPart(link, (findings) => { found = findings; attend(); });
  const attention = kept(wrong, { key: ({ subject, text }) => `${subject} ${text}`,
    draw: ({ subject, text }) => [el("strong", { text: subject }), " ", ...coded(text)] });
  const lanes = table("Lanes", ["Lane", "Workers", "Hints that wait"], {
    key: (lane) => lane.name, empty: "There are none.",
    cells: (lane) => [lane.name, count(lane.workers), count(lane.hints)],
  });
  const workers = table("Workers", ["Worker", "State", "Lanes", "Works on", "Since"], {
    key: (worker) => worker.name, empty: "No worker runs.",
    cells: (worker) => [`process ${worker.pid} on ${worker.host}`, worker.state, worker.lanes.join(", "),
      worker.sessionKey ? sessionLink(worker.sessionKey, worker.title) : "", since(worker.sinceMs)],
  });
  const sessions = table("Sessions at work", ["Session", "Agent", "State", "Messages", "Since"], {
    key: (session) => session.key, empty: "No session has work.",
    cells: (session) => [sessionLink(session.key, session.label ?? session.title ?? undefined), session.agent, stateOf(session), count(session.waiting), since(session.sinceMs)],
  });
  const agents = table("Warm agents", ["Agent", "Session", "Idle", "Memory"], {
    key: (agent) => `${agent.sinceMs} ${agent.sessionKey}`, empty: "No agent waits on the gateway's computer.",
    cells: (agent) => [agent.sessionKey ? nameOf(agent.sessionKey).split(" · ")[0] : "unknown", agent.sessionKey ? sessionLink(agent.sessionKey) : "unknown",
      since(agent.sinceMs), agent.memoryBytes ? size(agent.memoryBytes) : "unknown"],
  });
  const adapters = table("Adapters", ["Account", "Delivers", "Stands by", "Replies that wait", "Problem"], {
    key: (adapter) => adapter.account, empty: "No account is configured.",
    cells: (adapter) => [adapter.name ? `${adapter.account} as ${adapter.name}` : adapter.account,
      adapter.by ? process(adapter.by) : adapter.state,
      adapter.standbys.length ? adapter.standbys.map((each) => el("div", { text: process(each) })) : "none",
      count(adapter.waiting), coded(adapter.problem)],
  });
  const more = el("p", { class: "notice", hidden: true });
  const element = el("section", { class: "fleet" },
    el("h1", { text: "Fleet" }), looked, problem,
    part("Needs attention", wrong, well),
    letters.element,
    part("Lanes", lanes.element), part("Workers", workers.element), part("Sessions at work", sessions.element, more),
    part("Warm agents", agents.element), part("Adapters", adapters.element), doctor,
    part("Terminals", el("p", { class: "notice", text: "RemoteClaw has no terminals yet." })));
  let now = null, found = [];

  async function look() {
    try {
      now = await link.call("fleet.status");
      const dead = now.deadLetters ? await link.call("deadletters.list", { limit: SHOWN }) : { letters: [], count: 0 };
      letters.show(dead.letters, dead.count);
      draw();
      say(problem, "");
      looked.textContent = `Looked at ${moment(now.atMs)}`;
    } catch (error) {
      say(problem, error.message);
    }
  }

  function draw() {
    const titles = new Map(now.sessions.map((session) => [session.key, session.label ?? session.title]));
    attend();
    lanes.show(now.lanes);
    workers.show(now.workers.map((worker) => ({ ...worker, title: titles.get(worker.sessionKey) ?? undefined })));
    sessions.show(now.sessions);
    say(more, now.busySessions > now.sessions.length ? `${count(now.busySessions)} sessions have work in all.` : "");
    agents.show(now.agents);
    adapters.show(now.adapters);
    aged(element, now.atMs);
  }

  /** Show what is wrong: what is there to retry or drop, what the fleet tells, and what the doctor has found. */
  function attend() {
    const dead = now?.deadLetters ? [{ subject: "dead letters", text: now.deadLetters === 1 ? "One message or reply was given up." : `${count(now.deadLetters)} messages or replies were given up.` }] : [];
    const told = now?.problems ?? [];
    const isTold = (finding) => told.some((each) => each.subject === finding.subject);
    const items = [...dead, ...told, ...found.filter((finding) => !isTold(finding))];
    attention(items);
    well.hidden = items.length > 0;
  }

  return { element, connected: look, close: looking(look, EVERY_MS) };
}

function part(title, ...children) {
  const name = id();
  return el("section", { "aria-labelledby": name }, el("h2", { id: name, text: title }), ...children);
}

function process({ pid, host }) {
  return `process ${pid} on ${host}`;
}

function stateOf(session) {
  if (session.postponedUntilMs) return `waits until ${moment(session.postponedUntilMs)} (${session.postponed.replaceAll("_", " ")})`;
  if (session.state !== "running") return "waits for a worker";
  return session.waiting ? "works" : "has just answered";
}
