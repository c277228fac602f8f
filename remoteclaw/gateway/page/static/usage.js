// The view of usage: what is left of budgets, and the tokens, time and cost of turns by day, agent and session.

import { chart, countTop, meter, periodsOf, segmented } from "./charts.js";
import { bar, count, dollars, duration, el, fill, newId, problemLine, setMessage, view } from "./dom.js";
import { sessionLink } from "./session_keys.js";
import { get } from "./rpc.js";
import { emptyState } from "./empty_state.js";
import { figures, table } from "./tables.js";

/** The periods to choose from, in days. */
const PERIODS = [[7, "7 days"], [30, "30 days"]];
const MAX_SESSIONS = 20;
/** The metrics that are shown, with their labels; `/metrics` has all of them. */
const METRICS = [
  ["gateway_calls_total", "Calls since this gateway began"],
  ["gateway_auth_failures_total", "Requests without a valid token"],
  ["gateway_sockets", "Open connections"],
  ["channel_messages_total", "Messages of chat platforms that were read"],
  ["channel_skipped_messages_total", "Messages that could not be read"],
  ["channel_replies_waiting", "Answers that no adapter has delivered yet"],
];
/** Large numbers are short in figures and on axes, such as 1.2M. */
const short = new Intl.NumberFormat(undefined, { notation: "compact", maximumFractionDigits: 1 });
const SCOPES = { all: "All agents", tree: "A conversation with its tasks" };

export function usageView(link) {
  let days = PERIODS[0][0], ends = [];
  const problem = problemLine(), limits = el("ul", { class: "budgets" });
  const budgets = section("Budgets", limits);
  const totals = figures("Totals");
  const tokens = chart("Tokens by day", { format: (value) => short.format(value), top: countTop });
  const cost = chart("Cost by day", { format: dollars });
  const agents = sumTable("By agent", "Agent", (row) => row.name), sessions = sumTable("By session", "Session", (row) => row.name.includes("/") ? sessionLink(row.name, row.title ?? undefined) : `an expired session, ${row.name.slice(0, 8)}`);
  const more = el("p", { class: "about" }), facts = el("dl", { class: "facts" });
  const used = el("div", { hidden: true }, totals.element, el("div", { class: "charts" }, tokens.element, cost.element),
    section("By agent", agents.element), section("By session", sessions.element, more),
    el("p", { class: "about", text: "Costs are those that the agents' CLIs report, or follow from configured prices; with a subscription, what the same would cost by the token." }));
  const nothing = emptyState("usage", "No agent has taken a turn in these days.", "Its tokens, time and cost are summed here as soon as it answers a message.",
    el("a", { class: "button primary", href: "#/", text: "Write a message" }));
  nothing.hidden = true;
  const counters = el("details", { hidden: true, ontoggle: showMetrics }, el("summary", { text: "The gateway's counters" }), facts);
  budgets.hidden = true;
  const element = view(bar("Usage", segmented("Period", PERIODS, (chosen) => { days = chosen; follow(); })),
    el("div", { class: "usage data" }, problem, budgets, nothing, used, counters));

  /** Follow the usage of the chosen period. */
  function follow() {
    close();
    const results = {};
    ends = ["day", "agent", "session"].map((by) => link.follow("usage", { by, days }, (result) => {
      results[by] = result;
      if (results.day && results.agent && results.session) show(results);
    }, (error) => setMessage(problem, error.message)));
  }

  function close() {
    ends.forEach((end) => end());
  }

  function show({ day, agent, session }) {
    setMessage(problem, "");
    budgets.hidden = !agent.budgets.length;
    fill(limits, agent.budgets.map(budgetRow));
    nothing.hidden = agent.rows.length > 0;
    used.hidden = !agent.rows.length;
    counters.hidden = false;
    const all = sumOf(agent.rows);
    totals.show([
      { label: "Turns", value: count(all.turns), about: all.asides ? `and ${count(all.asides)} asides` : "" },
      ...(tokensOf(all) ? [{ label: "Tokens", value: short.format(tokensOf(all)), about: all.cacheReadTokens ? `${count(Math.round((100 * all.cacheReadTokens) / tokensOf(all)))} % from the cache` : "" }] : []),
      { label: "Time at work", value: duration(all.durationMs) },
      ...(all.costUsd ? [{ label: "Cost", value: dollars(all.costUsd), about: `${dollars(all.costUsd / days)} a day` }] : []),
    ]);
    const hasTokens = tokensOf(all) > 0;
    tokens.show(periodsOf(day, (row) => Object.fromEntries(row.agents.map((share) => [share.agent, hasTokens ? share.tokens : share.turns]))), hasTokens ? "Tokens by day" : "Turns by day");
    cost.show(periodsOf(day, (row) => Object.fromEntries(row.agents.map((share) => [share.agent, share.costUsd ?? 0]))));
    cost.element.hidden = !all.costUsd;
    agents.show(agent.rows.filter(hasUsed));
    const busiest = session.rows.filter(hasUsed);
    sessions.show(busiest.slice(0, MAX_SESSIONS));
    setMessage(more, busiest.length > MAX_SESSIONS ? `${count(busiest.length - MAX_SESSIONS)} more sessions used less.` : "");
  }

  async function showMetrics({ target }) {
    if (!target.open) return;
    const metrics = await readMetrics();
    fill(facts, METRICS.filter(([name]) => metrics[name]).flatMap(([name, text]) => [el("dt", { text }), el("dd", { text: count(metrics[name]) })]));
  }

  return { element, onConnected: follow, close };
}

function section(title, ...children) {
  const name = newId();
  return el("section", { "aria-labelledby": name }, el("h2", { id: name, text: title }), ...children);
}

function budgetRow({ scope, limits, verdict, left }) {
  const [kind, name] = scope.split(/:(.*)/);
  const ratio = Math.max(...limits.map(({ spent, limit }) => (limit ? spent / limit : 1)));
  const label = name || SCOPES[kind] || kind;
  return el("li", {}, el("span", { class: "name", text: label }),
    el("span", { class: "about", text: left.replace(/^[^:]*: /, "") }), meter(`Used of the budget: ${label}`, verdict === "lifted" ? 0 : ratio, left));
}

/** Return the number of tokens that were read and written. */
function tokensOf(row) {
  return row.inputTokens + row.cacheReadTokens + row.cacheWriteTokens + row.outputTokens;
}

function hasUsed(row) {
  return row.turns + row.asides + tokensOf(row) > 0;
}

function sumOf(rows) {
  const sum = { turns: 0, asides: 0, inputTokens: 0, cacheReadTokens: 0, cacheWriteTokens: 0, outputTokens: 0, durationMs: 0, costUsd: 0 };
  for (const row of rows) for (const name of Object.keys(sum)) sum[name] += row[name] ?? 0;
  return sum;
}

function sumTable(label, head, name) {
  const heads = [head, "Turns", "Tokens read", "of them cached", "written", "Time", "Cost"];
  return table(label, heads, {
    key: (row) => row.name, empty: "", isNumeric: true,
    cells: (row) => [name(row), [count(row.turns), row.asides ? ` + ${count(row.asides)} asides` : ""].join(""), some(tokensOf(row) - row.outputTokens),
      some(row.cacheReadTokens), [some(row.outputTokens), row.estimatedTokens ? ` (${count(row.estimatedTokens)} estimated)` : ""].join(""),
      duration(row.durationMs), row.costUsd ? dollars(row.costUsd) : ""],
  });
}

/** Return a number as text, empty for none. */
function some(value) {
  return value ? count(value) : "";
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
