// Small charts of bars, drawn as SVG: a bar for each hour or day, stacked by series. Positions are percentages, so a chart
// fits any width without being drawn again. Time runs from left to right, also in texts that run the other way.

import { count, el, fill } from "./dom.js";

const SVG = "http://www.w3.org/2000/svg";
/** At most this many series have a colour of their own; the smallest ones are added up as the last one. */
const MAX_SERIES = 4;
/** The part of a period's width that its bar takes, the part if periods are wide, and the least height of a bar, in percent. */
const BAR_WIDTH = 0.72, WIDE_BAR_WIDTH = 0.4, LEAST = 1.5;
/** Bars of fewer periods would be blocks. */
const MANY_PERIODS = 12;
const hourTick = new Intl.DateTimeFormat(undefined, { hour: "numeric" });
const hourAndDay = new Intl.DateTimeFormat(undefined, { weekday: "short", hour: "2-digit", minute: "2-digit" });
const dayName = new Intl.DateTimeFormat(undefined, { weekday: "short", day: "numeric", month: "short", timeZone: "UTC" });
const dayTick = new Intl.DateTimeFormat(undefined, { weekday: "short", timeZone: "UTC" });
const dateTick = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", timeZone: "UTC" });

/**
 * Return a chart; `format(value)` returns a value as text, `top(maximum)` the value at the top of the axis, and
 * `sum(values)` the value that stands for all periods.
 * `show(periods)` draws periods with `name`, `tick` (a label below the bar, or empty) and `parts`: values by series.
 */
export function chart(title, { format, top = roundTop, sum = total }) {
  const plot = shape("svg", { class: "plot", role: "img" }), ticks = shape("svg", { class: "ticks", "aria-hidden": "true" });
  const axis = el("div", { class: "axis", "aria-hidden": "true" });
  const heading = el("span", { class: "name", text: title }), readout = el("span", { class: "readout" });
  const legend = el("ul", { class: "legend" }), table = el("table");
  const element = el("figure", { class: "chart" },
    el("figcaption", {}, heading, readout),
    el("div", { class: "drawing", dir: "ltr" }, axis, plot, ticks), legend, el("div", { class: "unseen" }, table));
  let shown = "";

  function show(periods, name = title) {
    const drawn = JSON.stringify([periods, name]);
    if (drawn === shown) return;
    shown = drawn;
    const series = seriesOf(periods), stacks = periods.map((period) => stackOf(period, series));
    const sums = stacks.map((stack) => total(stack.map((part) => part.value)));
    const maximum = Math.max(0, ...sums), highest = top(maximum);
    const whole = format(sum(sums));
    heading.textContent = name;
    readout.textContent = whole;
    plot.setAttribute("aria-label", maximum ? `${name}: ${whole}. Most: ${format(maximum)}, ${periods[sums.indexOf(maximum)].name}.` : `${name}: ${whole}.`);
    fill(axis, [highest, highest / 2, 0].map((value) => el("span", { text: (maximum || !value) && isRound(value) ? format(value) : "" })));
    const width = 100 / periods.length;
    plot.replaceChildren(...["0", "50%", "100%"].map((y) => shape("line", { x1: "0", x2: "100%", y1: y, y2: y })),
      ...periods.map((period, index) => {
        const group = barOf(stacks[index], highest, { x: index * width, width });
        const text = `${period.name}: ${series.length > 1 && sums[index] ? stacks[index].filter((part) => part.value).map((part) => `${part.name} ${format(part.value)}`).join(", ") : format(sums[index])}`;
        group.append(shape("title", {}, text));
        group.addEventListener("pointerenter", () => { readout.textContent = text; });
        group.addEventListener("pointerleave", () => { readout.textContent = whole; });
        return group;
      }));
    ticks.replaceChildren(...periods.map((period, index) => period.tick
      ? shape("text", { x: `${(index + 0.5) * width}%`, y: "1em" }, period.tick) : null).filter(Boolean));
    fill(legend, series.length > 1 ? series.map((each, index) => el("li", {}, el("span", { class: `swatch series-${index}` }), each.name)) : []);
    fill(table, el("caption", { text: name }),
      el("thead", {}, el("tr", {}, el("th", { scope: "col", text: "When" }), (series.length ? series : [{ name }]).map((each) => el("th", { scope: "col", text: each.name })))),
      el("tbody", {}, periods.filter((_, index) => sums[index]).map((period) => el("tr", {}, el("th", { scope: "row", text: period.name }),
        stackOf(period, series).map((part) => el("td", { text: format(part.value) }))))));
  }

  return { element, show };
}

/** Return the periods of a result of the method `usage` by hour or day; `parts(row)` returns the values by series. */
export function periodsOf({ periods, rows }, parts) {
  const byName = new Map(rows.map((row) => [row.name, row]));
  const isHourly = periods.some((name) => name.includes("T"));
  return periods.map((name, index) => {
    const time = new Date(name), row = byName.get(name);
    const day = periods.length > 7 ? dateTick.format(time) : dayTick.format(time);
    const tick = isHourly ? (time.getHours() % 6 ? "" : hourTick.format(time)) : (periods.length > 7 && (periods.length - 1 - index) % 7 ? "" : day);
    return { name: isHourly ? hourAndDay.format(time) : dayName.format(time), tick, parts: row ? parts(row) : {} };
  });
}

/** Return a group of buttons of which one is chosen; `options` are pairs of a value and its text. */
export function segmented(label, options, onChoose) {
  const buttons = options.map(([value, text], index) => el("button", { type: "button", "aria-pressed": String(!index), onclick: () => {
    buttons.forEach((each, other) => each.setAttribute("aria-pressed", String(other === index)));
    onChoose(value);
  } }, text));
  return el("div", { class: "segmented", role: "group", "aria-label": label }, buttons);
}

/** Return a thin bar that shows how much of a limit is used. */
export function meter(label, ratio, text) {
  const part = Math.min(1, Math.max(0, ratio));
  return el("div", { class: "meter", role: "meter", "aria-label": label, "aria-valuemin": "0", "aria-valuemax": "100", "aria-valuenow": String(Math.round(100 * part)), "aria-valuetext": text },
    shape("svg", { "aria-hidden": "true", class: part >= 1 ? "reached" : part >= 0.8 ? "near" : "" }, shape("rect", { width: `${100 * part}%`, height: "100%" })));
}

/** Return the top of the axis of durations: a round number of seconds, minutes or hours. */
export function durationTop(ms) {
  if (ms <= 2000) return Math.max(200, Math.ceil(ms / 200) * 200);  // half of it has one decimal
  const unit = ms <= 60_000 ? 1000 : ms <= 3_600_000 ? 60_000 : 3_600_000;
  return Math.round(roundTop(ms / unit) * unit);
}

/** Return the top of the axis of whole numbers. */
export function countTop(maximum) {
  return Math.max(2, roundTop(maximum));
}

function roundTop(maximum) {
  if (!maximum) return 1;
  const power = 10 ** Math.floor(Math.log10(maximum));
  const top = [1, 1.2, 1.5, 2, 3, 4, 5, 6, 8, 10].find((each) => each * power >= maximum * 0.999) * power;
  return Number(top.toPrecision(3));
}

/** Whether a label of the axis is a number that people read easily. */
function isRound(value) {
  return Number.isInteger(value) || value < 1;
}

/** Return the series, largest first; the smallest ones are one series. */
function seriesOf(periods) {
  const sums = new Map();
  for (const { parts } of periods) for (const [name, value] of Object.entries(parts)) sums.set(name, (sums.get(name) ?? 0) + value);
  const names = [...sums].sort(([, one], [, other]) => other - one).map(([name]) => name);
  const own = names.length > MAX_SERIES ? names.slice(0, MAX_SERIES - 1) : names;
  const rest = names.slice(own.length);
  return [...own.map((name) => ({ name, of: [name] })), ...(rest.length ? [{ name: `${count(rest.length)} others`, of: rest }] : [])];
}

function stackOf({ parts }, series) {
  return (series.length ? series : [{ name: "", of: [] }]).map(({ name, of }) => ({ name, value: total(of.map((each) => parts[each] ?? 0)) }));
}

/** Return the bar of one period: a group that reacts to the pointer in its whole height. */
function barOf(stack, highest, { x, width }) {
  const taken = width * MANY_PERIODS > 100 ? WIDE_BAR_WIDTH : BAR_WIDTH;
  let y = 100;
  const bars = stack.map(({ value }, index) => {
    const height = value ? Math.max(LEAST, (100 * value) / highest) : 0;
    y -= height;
    return value ? shape("rect", { class: `series-${index}`, x: `${x + (width * (1 - taken)) / 2}%`, width: `${width * taken}%`, y: `${Math.max(0, y)}%`, height: `${height}%` }) : null;
  });
  const group = shape("g", {}, shape("rect", { class: "ground", x: `${x}%`, width: `${width}%`, y: "0", height: "100%" }));
  group.append(...bars.filter(Boolean));
  return group;
}

function total(values) {
  return values.reduce((sum, value) => sum + value, 0);
}

function shape(tag, attributes, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}
