// Elements, and the one place where HTML gets into the page: it comes from the gateway, which
// writes nothing but known tags (gateway/page/html.py).

const rules = { createHTML: (html) => html, createScriptURL: () => "/page/sw.js" };
const policy = globalThis.trustedTypes?.createPolicy("remoteclaw", rules) ?? rules;

/** Return an element: attributes, `on…` listeners, and children; null and false are none. */
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

/** Show what the gateway has made of a Markdown text. */
export function rendered(html) {
  const made = el("div", { class: "text" });
  made.innerHTML = policy.createHTML(html);
  return made;
}

/** Return the address of the service worker, the one script that is loaded by name. */
export function workerScript() {
  return policy.createScriptURL("");
}

/** Replace all that an element has. */
export function fill(element, ...children) {
  element.replaceChildren(...children.flat().filter((child) => child !== null && child !== false && child !== undefined));
}

const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const day = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
const number = new Intl.NumberFormat();
const money = new Intl.NumberFormat(undefined, { style: "currency", currency: "USD", maximumSignificantDigits: 3 });
const relative = new Intl.RelativeTimeFormat(undefined, { numeric: "auto" });

/** Return a moment in words: the time if it was today. */
export function moment(ms) {
  const then = new Date(ms);
  return then.toDateString() === new Date().toDateString() ? clock.format(then) : day.format(then);
}

/** Return how long ago a moment was. */
export function ago(ms) {
  const minutes = Math.round((ms - Date.now()) / 60000);
  if (Math.abs(minutes) < 60) return relative.format(minutes, "minute");
  const hours = Math.round(minutes / 60);
  return Math.abs(hours) < 48 ? relative.format(hours, "hour") : relative.format(Math.round(hours / 24), "day");
}

/** Return a whole number as people here write it. */
export function count(value) {
  return number.format(value);
}

/** Return a length of time in words. */
export function duration(ms) {
  const [unit, value] = ms < 60_000 ? ["second", ms / 1000] : ms < 5_400_000 ? ["minute", ms / 60_000] : ["hour", ms / 3_600_000];
  return new Intl.NumberFormat(undefined, { style: "unit", unit, unitDisplay: "narrow", maximumFractionDigits: 1 }).format(value);
}

/** Return what something cost. */
export function dollars(value) {
  return money.format(value);
}

/** Return a size in words. */
export function size(bytes) {
  const units = ["B", "KB", "MB"];
  let unit = 0;
  while (bytes >= 1000 && unit < 2) { bytes /= 1000; unit += 1; }
  return `${number.format(Math.round(bytes * 10) / 10)} ${units[unit]}`;
}

/** Return a button that does something: it sends no form. */
export function button(text, onclick, attributes = {}) {
  return el("button", { type: "button", onclick, ...attributes }, text);
}

/** Return a line for what goes wrong, of which nothing is seen until it says something. */
export function problemLine() {
  return el("p", { class: "problem", role: "alert", hidden: true });
}

/** Have a line say something; one without words is hidden. */
export function say(line, words) {
  line.hidden = !words;
  line.textContent = words;
}

/** Return a moment as it is shown. */
export function stamp(ms) {
  return el("time", { datetime: new Date(ms).toISOString(), text: moment(ms) });
}

/** Return an id that nothing else has. */
export function id() {
  return crypto.getRandomValues(new Uint32Array(4)).reduce((text, part) => text + part.toString(16).padStart(8, "0"), "");
}

/** Do what buttons begin, once at a time; meanwhile they are off, but keep the focus, which `disabled` would take. */
export async function busy(buttons, what) {
  buttons = [...buttons];
  if (buttons.some((each) => each.ariaDisabled === "true")) return;
  for (const each of buttons) each.ariaDisabled = "true";
  try {
    await what();
  } finally {
    for (const each of buttons) each.ariaDisabled = null;
  }
}

/** What is read aloud to those who listen, once. */
export const heard = el("p", { class: "unseen", role: "status" });
