// Creates elements, and formats values. Only rendered() inserts HTML: it comes from the gateway, which
// generates only known tags (gateway/page/html.py).

const rules = { createHTML: (html) => html, createScriptURL: () => "/page/sw.js" };
const policy = globalThis.trustedTypes?.createPolicy("remoteclaw", rules) ?? rules;

/** Return an element with attributes, `on…` listeners and children; null and false are left out. */
export function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "text") made.textContent = value;
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== false && child !== undefined));
  return made;
}

/** Return an element with the HTML that the gateway rendered from a Markdown text. */
export function rendered(html) {
  const made = el("div", { class: "text" });
  made.innerHTML = policy.createHTML(html);
  return made;
}

/** Return the URL of the service worker. */
export function workerScript() {
  return policy.createScriptURL("");
}

/** Replace the children of an element. */
export function fill(element, ...children) {
  element.replaceChildren(...children.flat().filter((child) => child !== null && child !== false && child !== undefined));
}

const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const day = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
const number = new Intl.NumberFormat();
const money = new Intl.NumberFormat(undefined, { style: "currency", currency: "USD" });
const littleMoney = new Intl.NumberFormat(undefined, { style: "currency", currency: "USD", maximumFractionDigits: 4 });
const relative = new Intl.RelativeTimeFormat(undefined, { numeric: "auto" });

/** Return a time as text: without the date if it is today. */
export function moment(ms) {
  const then = new Date(ms);
  return then.toDateString() === new Date().toDateString() ? clock.format(then) : day.format(then);
}

/** Return until when and why the messages of a session are postponed, as text; empty if they aren't. */
export function pauseOf({ postponedUntilMs, postponedFor }) {
  return postponedUntilMs ? `waits until ${moment(postponedUntilMs)} (${postponedFor})` : "";
}

/** Return how long ago a time is, as text. */
export function ago(ms) {
  const minutes = Math.round((ms - Date.now()) / 60000);
  if (Math.abs(minutes) < 60) return relative.format(minutes, "minute");
  const hours = Math.round(minutes / 60);
  return Math.abs(hours) < 48 ? relative.format(hours, "hour") : relative.format(Math.round(hours / 24), "day");
}

/** Return a whole number as text, in the format of the locale. */
export function count(value) {
  return number.format(value);
}

/** Return a duration as text, as people write it: seconds, or two units such as minutes and seconds. */
export function duration(ms) {
  if (ms < 9950) return inUnit(ms / 1000, "second");
  const seconds = Math.round(ms / 1000), minutes = Math.floor(seconds / 60);
  if (minutes < 1) return inUnit(seconds, "second");
  const units = minutes < 60 ? ["minute", minutes, "second", seconds % 60] : ["hour", Math.floor(minutes / 60), "minute", minutes % 60];
  return [inUnit(units[1], units[0]), units[3] && inUnit(units[3], units[2])].filter(Boolean).join(" ");
}

function inUnit(value, unit) {
  return new Intl.NumberFormat(undefined, { style: "unit", unit, unitDisplay: "narrow", maximumFractionDigits: 1 }).format(value);
}

/** Return a cost as text, with more digits if it is below ten cents. */
export function dollars(value) {
  return (value && value < 0.1 ? littleMoney : money).format(value);
}

/** Return a size as text. */
export function size(bytes) {
  const units = ["B", "KB", "MB"];
  let unit = 0;
  while (bytes >= 1000 && unit < 2) { bytes /= 1000; unit += 1; }
  return `${number.format(Math.round(bytes * 10) / 10)} ${units[unit]}`;
}

/** Return a button, which does not submit a form. */
export function button(text, onclick, attributes = {}) {
  return el("button", { type: "button", onclick, ...attributes }, text);
}

/** Return the bar of a view: its title, a text or an `h1`, and its actions at the other end. */
export function bar(title, ...actions) {
  return el("header", { class: "bar" },
    typeof title === "string" ? el("h1", { text: title }) : title,
    el("div", { class: "actions" }, actions));
}

/** Return a view with the bar `head`, and content that scrolls below it. */
export function view(head, ...content) {
  return el("section", { class: "view" }, head, el("div", { class: "content" }, content));
}

/** Return a line for an error message, hidden while it is empty. */
export function problemLine() {
  return el("p", { class: "problem", role: "alert", hidden: true });
}

/** Set the text of a line; an empty text hides it. */
export function setMessage(line, text) {
  line.hidden = !text;
  line.textContent = text;
}

/** Return a time element. */
export function stamp(ms) {
  return el("time", { datetime: new Date(ms).toISOString(), text: moment(ms) });
}

/** Return a new random id. */
export function newId() {
  return crypto.getRandomValues(new Uint32Array(4)).reduce((text, part) => text + part.toString(16).padStart(8, "0"), "");
}

/** Run `action` unless it runs already. Meanwhile the buttons are off by ARIA: `disabled` would take their focus. */
export async function whileBusy(buttons, action) {
  buttons = [...buttons];
  if (buttons.some((each) => each.ariaDisabled === "true")) return;
  for (const each of buttons) each.ariaDisabled = "true";
  try {
    await action();
  } finally {
    for (const each of buttons) each.ariaDisabled = null;
  }
}

/** The live region: screen readers read each new text once. */
export const liveRegion = el("p", { class: "unseen", role: "status" });
