// The view of the fleet: its numbers, what is wrong, charts of the last day or week, and what works or waits.

import { attention } from "./attention.js";
import { chart, countTop, durationTop, periodsOf, segmented } from "./charts.js";
import { bar, count, dollars, duration, el, newId, pauseOf, problemLine, setMessage, size, view } from "./dom.js";
import { stateMark } from "./icons.js";
import { nameOf, sessionLink } from "./session_keys.js";
import { age, ageText, figures, table, updateAges, withCode } from "./tables.js";

/** How often the ages are updated. */
const AGES_MS = 1000;
/** The periods of the charts: what a bar is, how many days they show, and their names. */
const PERIODS = [[{ by: "hour", days: 1 }, "24 hours"], [{ by: "day", days: 7 }, "7 days"]];
/** The account of this page, which each gateway serves. */
const PAGE = "web/default";
const WORKER_STATES = { idle: "free", busy: "a message", started: "starts", suspended: "suspended" };
const LANES = { agents: "Messages of people", background: "Background work" };

export function fleetView(link) {
  const problem = problemLine();
  const wrong = attention(link);
  const numbers = figures("Now and today");
  const charts = chartsSection();
  const sessions = table("Sessions at work", ["Session", "Agent", "Messages", "Since"], {
    key: (session) => session.key, empty: "No session has work.",
    cells: (session) => [[stateOf(session), " ", sessionLink(session.key, session.label ?? session.title ?? undefined),
      session.state === "terminal" ? el("span", { class: "about", text: " open in a terminal" }) : null,
      session.postponedUntilMs ? el("span", { class: "about", text: ` ${pauseOf(session)}` }) : null].filter(Boolean),
      session.agent, count(session.waiting), age(session.sinceMs)],
  });
  const more = el("p", { class: "notice", hidden: true });
  const lines = el("div", {});
  const failed = table("Failed turns", ["Agent", "Failed", "The newest in", "Ago", "Computer", "Reason"], {
    key: (turns) => `${turns.agent} ${turns.category}`, empty: "",
    cells: (turns) => [turns.agent, `${count(turns.count)} ${turns.category.replaceAll("_", " ")}`,
      [turns.sessionKey ? sessionLink(turns.sessionKey, turns.title ?? undefined) : "", " ", el("code", { text: turns.reference })],
      age(turns.atMs), computer(turns.host), turns.reason],
  });
  const failures = section("Failed turns", lines, failed.element);
  const lanes = el("dl", { class: "facts" });
  const workers = table("Workers", ["Worker", "Now", "Since"], {
    key: (worker) => worker.name, empty: "No worker runs.",
    cells: (worker) => [worker.state === "busy" ? [stateMark("works", "works:"), " ", computer(worker.host)] : computer(worker.host),
      worker.silentSinceMs ? "does not answer" : worker.sessionKey ? sessionLink(worker.sessionKey, worker.title) : WORKER_STATES[worker.state] ?? worker.state, age(worker.silentSinceMs ?? worker.sinceMs)],
  });
  const agents = table("Warm agents", ["Agent", "Session", "Idle for", "Memory"], {
    key: (agent) => `${agent.sinceMs} ${agent.sessionKey}`, empty: "No agent is kept warm on this computer.",
    cells: (agent) => [agent.sessionKey ? nameOf(agent.sessionKey).split(" · ")[0] : "an agent", agent.sessionKey ? sessionLink(agent.sessionKey, agent.title) : "has a newer agent",
      age(agent.sinceMs), agent.memoryBytes ? size(agent.memoryBytes) : ""],
  });
  const accounts = table("Accounts", ["Account", "Connected by", "Answers that wait"], {
    key: (adapter) => adapter.account, empty: "No account is configured.",
    cells: (adapter) => [[adapter.state === "runs" ? stateMark("unread", "connected:") : stateMark("failed", adapter.state === "refused" ? "refused:" : "not connected:"), " ", adapter.account === PAGE ? "this page" : adapter.account, adapter.name ? ` as ${adapter.name}` : ""],
      adapter.by ? [computer(adapter.by.host), standbysOf(adapter)].filter(Boolean).join(", ") : adapter.state === "runs" ? "a process" : "nobody", adapter.waiting ? count(adapter.waiting) : "none"],
  });
  const hosts = table("Computers", ["Computer", "Runs", "Version"], {
    key: (host) => host.id, empty: "No computer is known.",
    cells: (host) => [host.drainedMs ? `${computer(host.name)}, drained` : computer(host.name), partsOf(host), host.versions.join(", ")],
  });
  const memory = el("p", { class: "notice" });
  const processes = table("Processes", ["Process", "Computer", "Number", "Serves"], {
    key: (process) => `${process.kind} ${process.host} ${process.pid} ${process.serves}`, empty: "No process is known.",
    cells: (process) => [process.kind, process.host, String(process.pid), process.serves],
  });
  // Hidden until all of it is known: nothing moves while it is loaded.
  const content = el("div", { class: "fleet data", hidden: true }, numbers.element, wrong.element, failures, charts.element,
    section("At work", sessions.element, more),
    section("Workers", lanes, workers.element),
    section("Warm agents", agents.element), section("Accounts", accounts.element),
    el("details", {}, el("summary", { text: "Processes" }), hosts.element, memory, processes.element));
  const element = view(bar("Fleet", wrong.check), problem, content);
  let status = null;
  let clock = 0;  // how far the gateway's clock is ahead of this one, in milliseconds

  const fail = (error) => setMessage(problem, error.message);
  const timer = setInterval(() => {
    updateAges(element, Date.now() + clock);
    if (status) showNumbers();
  }, AGES_MS);
  let ends = [];

  function onConnected() {
    ends.forEach((end) => end());
    ends = [
      link.follow("fleet.status", {}, (result) => {
        status = result;
        clock = status.atMs - Date.now();
        draw();
        show();
      }, fail),
      wrong.follow(fail),
    ];
    charts.follow();
  }

  function close() {
    ends.forEach((end) => end());
    charts.close();
    clearInterval(timer);
  }

  function show() {
    setMessage(problem, "");
    content.hidden = !(status && charts.isDrawn());
  }

  function computer(host) {
    return host === status.host ? "this computer" : host;
  }

  function draw() {
    const titles = new Map(status.sessions.map((session) => [session.key, session.label ?? session.title]));
    const titled = (each) => ({ ...each, title: titles.get(each.sessionKey) ?? undefined });
    showNumbers();
    wrong.show(status);
    failures.hidden = !status.failing.length;
    lines.replaceChildren(...status.failing.map(({ agent, line, categories: [{ reference }] }) => el("p", {},
      ...withCode(`${agent}: ${line}. \`remoteclaw sessions trace ${reference}\` shows the newest.`))));
    failed.show(status.failing.flatMap(({ agent, categories }) => categories.map((each) => ({ ...each, agent }))));
    sessions.show(status.sessions);
    setMessage(more, status.busySessions > status.sessions.length ? `${count(status.busySessions)} sessions have work in all.` : "");
    lanes.replaceChildren(...status.lanes.flatMap((lane) => [el("dt", { text: LANES[lane.name] ?? lane.name }), el("dd", { text: laneText(lane) })]));
    workers.show(status.workers.map(titled));
    agents.show(status.agents.map(titled));
    accounts.show(status.adapters);
    hosts.show(status.hosts);
    const { usedBytes, limitBytes } = status.memory;
    setMessage(memory, `Redis uses ${size(usedBytes)}${limitBytes ? ` of ${size(limitBytes)}` : ", without a limit"}.`);
    processes.show([
      ...status.workers.map((worker) => ({ kind: "worker", host: worker.host, pid: worker.pid, serves: worker.lanes.map((lane) => (LANES[lane] ?? lane).toLowerCase()).join(", ") })),
      ...status.adapters.flatMap((adapter) => [...(adapter.by ? [{ kind: "adapter", ...adapter.by, serves: adapter.account }] : []),
        ...adapter.standbys.map((each) => ({ kind: "stand-by", ...each, serves: adapter.account }))]),
    ]);
    updateAges(element, status.atMs);
  }

  function showNumbers() {
    const { running, waiting, waitingSinceMs, postponed, workers: all, freeWorkers, agents: warm, openRequests, today } = status;
    const oldest = waitingSinceMs ? `oldest ${ageText(waitingSinceMs, Date.now() + clock)}` : "";
    const later = postponed ? `${count(postponed)} for a limit` : "";
    numbers.show([
      { label: "Turns running", value: count(running) },
      { label: "Waiting", value: count(waiting), about: [oldest, later].filter(Boolean).join(", ") },
      { label: "Workers free", value: count(freeWorkers), about: `of ${count(all.length)}` },
      { label: "Warm agents", value: count(warm.length) },
      { label: "Open requests", value: count(openRequests), href: openRequests ? "#/requests" : null },
      { label: "Turns today", value: count(today.turns) },
      ...(today.costUsd ? [{ label: "Cost today", value: dollars(today.costUsd) }] : []),
    ]);
  }

  /** The charts of the last day or week. */
  function chartsSection() {
    const turns = chart("Turns", { format: count, top: countTop });
    const wait = chart("Longest wait", { format: duration, top: durationTop, sum: (values) => Math.max(0, ...values) });
    const spent = chart("Cost", { format: (value) => (value ? dollars(value) : dollars(0)) });
    const tokens = chart("Tokens", { format: count, top: countTop });
    const drawings = el("div", { class: "charts", hidden: true }, turns.element, wait.element, spent.element, tokens.element);
    const none = el("p", { class: "notice", text: "No turn has ended in this time.", hidden: true });
    let period = PERIODS[0][0], end = null, isDrawn = false;

    function follow() {
      close();
      end = link.follow("usage", period, (result) => {
        drawings.hidden = !result.rows.length;
        none.hidden = result.rows.length > 0;
        const hasCost = result.rows.some((row) => row.costUsd);
        turns.show(periodsOf(result, (row) => ({ turns: row.turns })));
        wait.show(periodsOf(result, (row) => ({ wait: row.waitMs ?? 0 })));
        spent.show(periodsOf(result, (row) => ({ cost: row.costUsd ?? 0 })));
        tokens.show(periodsOf(result, (row) => ({ tokens: row.agents.reduce((sum, share) => sum + share.tokens, 0) })));
        spent.element.hidden = !hasCost;
        tokens.element.hidden = hasCost || !result.rows.some((row) => row.agents.some((share) => share.tokens));
        isDrawn = true;
        show();
      }, fail);
    }

    function close() {
      end?.();
      end = null;
    }

    const name = newId();
    const choice = segmented("Period", PERIODS, (chosen) => { period = chosen; follow(); });
    return { follow, close, isDrawn: () => isDrawn, element: el("section", { "aria-labelledby": name },
      el("div", { class: "heading" }, el("h2", { id: name, text: "Activity" }), choice),
      drawings, none) };
  }

  return { element, onConnected, close };
}

function section(title, ...children) {
  const name = newId();
  return el("section", { "aria-labelledby": name }, el("h2", { id: name, text: title }), ...children);
}

function laneText({ workers, hints }) {
  const by = workers === 1 ? "1 worker" : `${count(workers)} workers`;
  return `${by}, ${hints ? `${count(hints)} ${hints === 1 ? "waits" : "wait"}` : "nothing waits"}`;
}

function partsOf({ workers, gateways, sweepers, channels }) {
  const parts = [[workers, workers === 1 ? "1 worker" : `${count(workers)} workers`], [gateways, "gateway"], [sweepers, "sweeper"], [channels, "chat platforms"]];
  return parts.filter(([number]) => number).map(([, name]) => name).join(", ");
}

function standbysOf({ standbys }) {
  return standbys.length ? `${count(standbys.length)} more ${standbys.length === 1 ? "stands" : "stand"} by` : "";
}

function stateOf(session) {
  if (session.state === "terminal") return stateMark("works", "works:");
  if (session.postponedUntilMs) return stateMark("waits", "waits:");
  if (session.state === "scheduled") return stateMark("waits", "waits for a worker:");
  return stateMark("works", session.waiting ? "works:" : "has just answered:");
}
