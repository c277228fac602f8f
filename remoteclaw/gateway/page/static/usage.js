// What turns took, and what the gateway has counted.

import { button, count, dollars, duration, el, fill, problemLine, say } from "./dom.js";
import { sessionLink } from "./session_keys.js";
import { looking } from "./looking.js";
import { get } from "./rpc.js";

const EVERY_MS = 10_000;
const PERIODS = [7, 30];
const MAX_SESSIONS = 20;
/** The few of the gateway's counters that an operator asks for; `/metrics` has them all. */
const METERS = [
  ["gateway_calls_total", "Calls since this gateway began"],
  ["gateway_auth_failures_total", "Requests without a valid token"],
  ["gateway_sockets", "Open connections"],
  ["channel_messages_total", "Messages of chat platforms that were read"],
  ["channel_aside_total", "Messages that could not be read"],
  ["channel_replies_waiting", "Answers that no adapter has delivered yet"],
];
const dayName = new Intl.DateTimeFormat(undefined, { weekday: "short", day: "numeric", month: "short", timeZone: "UTC" });

export function usageView(link) {
  let days = PERIODS[0], shown = "";
  const periods = PERIODS.map((each) => button(`${each} days`, () => choose(each), { "aria-pressed": String(each === days) }));
  const problem = problemLine();
  const tables = el("div"), facts = el("dl", { class: "facts" });
  const element = el("section", { class: "usage" }, el("h1", { text: "Usage" }),
    el("div", { class: "choices", role: "group", "aria-label": "Period" }, periods), problem, tables,
    el("h2", { text: "The gateway" }), facts);

  function choose(period) {
    days = period;
    periods.forEach((each, index) => each.setAttribute("aria-pressed", String(PERIODS[index] === days)));
    return look();
  }

  async function look() {
    const asked = days;
    try {
      const [byDay, byAgent, bySession, meters] = await Promise.all([
        ...["day", "agent", "session"].map(async (by) => (await link.call("usage", { by, days })).rows), counters()]);
      const next = JSON.stringify([days, byDay, byAgent, bySession]);
      if (asked !== days) return;  // another period has been chosen since
      say(problem, "");
      fill(facts, METERS.filter(([name]) => name in meters).flatMap(([name, words]) => [el("dt", { text: words }), el("dd", { text: count(meters[name]) })]));
      if (next === shown) return;
      shown = next;
      fill(tables, byAgent.length ? [
        el("h2", { text: "By day" }), bars(byDay, days),
        el("h2", { text: "By agent" }), sums(byAgent, "Agent", (row) => row.name),
        el("h2", { text: "By session" }), sums(bySession.slice(0, MAX_SESSIONS), "Session",
          (row) => sessionLink(row.name, row.title ?? row.name)),
        bySession.length > MAX_SESSIONS ? el("p", { class: "about", text: `${count(bySession.length - MAX_SESSIONS)} more sessions took less.` }) : null,
        el("p", { class: "about", text: "Costs are those that agents' CLIs tell: under a subscription, what the same would cost by the token." }),
      ] : el("p", { class: "notice", text: "No agent has taken a turn in these days." }));
    } catch (error) {
      if (error.code === "UNAVAILABLE") return;  // the status line says that it is away
      say(problem, error.message);
    }
  }

  return { element, connected: look, told: ({ event }) => event === "session.outcome" && look(), close: looking(look, EVERY_MS) };
}

function read(row) {
  return row.inputTokens + row.cacheReadTokens + row.cacheWriteTokens;
}

/** Return a row for each day, with a bar as long as its share: of tokens, or of turns where none are told. */
function bars(rows, days) {
  const byDay = new Map(rows.map((row) => [row.name, row]));
  for (let back = 0; back < days; back += 1) {
    const then = new Date();
    then.setDate(then.getDate() - back);
    const name = [then.getFullYear(), then.getMonth() + 1, then.getDate()].map((part) => String(part).padStart(2, "0")).join("-");
    if (!byDay.has(name)) byDay.set(name, null);
  }
  const hasTokens = rows.some((row) => read(row) + row.outputTokens);
  const amount = (row) => (row ? (hasTokens ? read(row) + row.outputTokens : row.turns) : 0);
  const most = Math.max(...rows.map(amount));
  return table(["Day", hasTokens ? "Tokens" : "Turns", ""], [...byDay].sort(([one], [other]) => (one < other ? 1 : -1)).map(([name, row]) => {
    const bar = el("span", { class: "bar" });
    bar.style.width = `${(100 * amount(row)) / most}%`;
    return [dayName.format(Date.parse(name)), count(amount(row)), bar];
  }), "bars");
}

function sums(rows, what, name) {
  return table([what, "Turns", "Tokens read", "from the cache", "Tokens written", "Time", "Cost"], rows.map((row) => [
    name(row), count(row.turns), count(read(row)), count(row.cacheReadTokens), count(row.outputTokens),
    duration(row.durationMs), row.costUsd ? dollars(row.costUsd) : "–",
  ]));
}

function table(heads, rows, kind = null) {
  const place = (index) => (index ? "right" : null);
  return el("div", { class: "table", tabindex: "0" }, el("table", { class: kind },
    el("thead", {}, el("tr", {}, heads.map((head, index) => el("th", { scope: "col", class: place(index), text: head })))),
    el("tbody", {}, rows.map((cells) => el("tr", {}, cells.map((cell, index) => el(index ? "td" : "th", { scope: index ? null : "row", class: place(index) }, cell)))))));
}

/** Return the gateway's counters by name, each the sum of its parts. */
async function counters() {
  const answer = await get("/page/metrics").catch(() => null);
  const sums = {};
  for (const line of answer?.ok ? (await answer.text()).split("\n") : []) {
    const [, name, value] = /^remoteclaw_(\w+)(?:\{.*\})? ([\d.e+]+)$/.exec(line) ?? [];
    if (name) sums[name] = (sums[name] ?? 0) + Number(value);
  }
  return sums;
}
