// The view of usage: tokens, time and cost of turns, and counters of the gateway.

import { bar, button, count, dollars, duration, el, fill, problemLine, setMessage, view } from "./dom.js";
import { sessionLink } from "./session_keys.js";
import { get } from "./rpc.js";

/** The periods to choose from, in days. */
const PERIODS = [7, 30];
const MAX_SESSIONS = 20;
/** The metrics that are shown, with their labels; `/metrics` has all of them. */
const METRICS = [
  ["gateway_calls_total", "Calls since this gateway began"],
  ["gateway_auth_failures_total", "Requests without a valid token"],
  ["gateway_sockets", "Open connections"],
  ["channel_messages_total", "Messages of chat platforms that were read"],
  ["channel_aside_total", "Messages that could not be read"],
  ["channel_replies_waiting", "Answers that no adapter has delivered yet"],
];
const dayName = new Intl.DateTimeFormat(undefined, { weekday: "short", day: "numeric", month: "short", timeZone: "UTC" });

export function usageView(link) {
  let days = PERIODS[0], ends = [];
  const periods = PERIODS.map((each) => button(`${each} days`, () => choose(each), { "aria-pressed": String(each === days) }));
  const problem = problemLine();
  const tables = el("div"), facts = el("dl", { class: "facts" });
  const element = view(bar("Usage"), el("div", { class: "usage" },
    el("div", { class: "choices", role: "group", "aria-label": "Period" }, periods), problem, tables,
    el("h2", { text: "The gateway" }), facts));

  function choose(period) {
    days = period;
    periods.forEach((each, index) => each.setAttribute("aria-pressed", String(PERIODS[index] === days)));
    follow();
  }

  /** Follow the usage of the chosen period. */
  function follow() {
    close();
    const rows = {};
    ends = ["day", "agent", "session"].map((by) => link.follow("usage", { by, days }, (result) => {
      rows[by] = result.rows;
      rows.budgets = result.budgets;
      if (rows.day && rows.agent && rows.session) show(rows);
    }, (error) => setMessage(problem, error.message)));
  }

  function close() {
    ends.forEach((end) => end());
  }

  async function show({ day, agent, session, budgets }) {
    setMessage(problem, "");
    const limits = budgets.length ? [el("h2", { text: "Budgets" }), el("ul", { class: "budgets" }, budgets.map(({ left }) => el("li", { text: left })))] : [];
    fill(tables, agent.length ? [
      ...limits,
      el("h2", { text: "By day" }), dayTable(day, days),
      el("h2", { text: "By agent" }), sumTable(agent, "Agent", (row) => row.name),
      el("h2", { text: "By session" }), sumTable(session.slice(0, MAX_SESSIONS), "Session",
        (row) => sessionLink(row.name, row.title ?? row.name)),
      session.length > MAX_SESSIONS ? el("p", { class: "about", text: `${count(session.length - MAX_SESSIONS)} more sessions took less.` }) : null,
      el("p", { class: "about", text: "Costs are those that the agents' CLIs report, or follow from configured prices; with a subscription, what the same would cost by the token." }),
    ] : [...limits, el("p", { class: "notice", text: "No agent has taken a turn in these days." })]);
    const metrics = await readMetrics();
    fill(facts, METRICS.filter(([name]) => name in metrics).flatMap(([name, text]) => [el("dt", { text }), el("dd", { text: count(metrics[name]) })]));
  }

  return { element, onConnected: follow, close };
}

/** Return the number of tokens that were read. */
function tokensRead(row) {
  return row.inputTokens + row.cacheReadTokens + row.cacheWriteTokens;
}

/** Return a table with a bar for each day: of its tokens, or of its turns if no agent reports tokens. */
function dayTable(rows, days) {
  const byDay = new Map(rows.map((row) => [row.name, row]));
  for (let back = 0; back < days; back += 1) {
    const then = new Date();
    then.setDate(then.getDate() - back);
    const name = [then.getFullYear(), then.getMonth() + 1, then.getDate()].map((part) => String(part).padStart(2, "0")).join("-");
    if (!byDay.has(name)) byDay.set(name, null);
  }
  const hasTokens = rows.some((row) => tokensRead(row) + row.outputTokens);
  const amount = (row) => (row ? (hasTokens ? tokensRead(row) + row.outputTokens : row.turns) : 0);
  const maximum = Math.max(...rows.map(amount));
  return table(["Day", hasTokens ? "Tokens" : "Turns", ""], [...byDay].sort(([one], [other]) => (one < other ? 1 : -1)).map(([name, row]) => {
    const bar = el("span", { class: "bar" });
    bar.style.width = `${(100 * amount(row)) / maximum}%`;
    return [dayName.format(Date.parse(name)), count(amount(row)), bar];
  }), "bars");
}

function sumTable(rows, label, name) {
  return table([label, "Turns", "Asides", "Tokens read", "from the cache", "Tokens written", "Time", "Cost"], rows.map((row) => [
    name(row), count(row.turns), count(row.asides), count(tokensRead(row)),
    `${count(row.cacheReadTokens)}${row.estimatedTokens ? ` (${count(row.estimatedTokens)} estimated)` : ""}`, count(row.outputTokens),
    duration(row.durationMs), row.costUsd ? dollars(row.costUsd) : "–",
  ]));
}

function table(heads, rows, kind = null) {
  const alignment = (index) => (index ? "right" : null);
  return el("div", { class: "table", tabindex: "0" }, el("table", { class: kind },
    el("thead", {}, el("tr", {}, heads.map((head, index) => el(head ? "th" : "td", { scope: head ? "col" : null, class: alignment(index), text: head })))),
    el("tbody", {}, rows.map((cells) => el("tr", {}, cells.map((cell, index) => el(index ? "td" : "th", { scope: index ? null : "row", class: alignment(index) }, cell)))))));
}

/** Return the gateway's metrics by name, each summed over its labels. */
async function readMetrics() {
  const answer = await get("/page/metrics").catch(() => null);
  const sums = {};
  for (const line of answer?.ok ? (await answer.text()).split("\n") : []) {
    const [, name, value] = /^remoteclaw_(\w+)(?:\{.*\})? ([\d.e+]+)$/.exec(line) ?? [];
    if (name) sums[name] = (sums[name] ?? 0) + Number(value);
  }
  return sums;
}
