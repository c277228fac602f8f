// The page's icons: strokes on a grid of 20 by 20, in the colour of the text around them.

import { button, el } from "./dom.js";

const SVG = "http://www.w3.org/2000/svg";
const CIRCLE = "M10 17a7 7 0 1 0 0-14 7 7 0 0 0 0 14Z";
const PATHS = {
  mark: "M5.2 18C0 11.2 2.8 2.8 12.8 1.6c-3.2 2.8-4.4 6-3.6 10ZM7.6 18.8c6.4.8 11.6-4.4 10.4-11.2-2 3.2-4.4 5.2-7.6 6Z",
  menu: "M3 5.5h14M3 10h14M3 14.5h14",
  search: "M9 15A6 6 0 1 0 9 3a6 6 0 0 0 0 12ZM13.5 13.5 17 17",
  add: "M10 4v12M4 10h12",
  compose: "M9.5 4h-4A1.5 1.5 0 0 0 4 5.5v9A1.5 1.5 0 0 0 5.5 16h9a1.5 1.5 0 0 0 1.5-1.5v-4M8 12l.5-2.5L15 3l2 2-6.5 6.5L8 12Z",
  requests: "M3 11l2.2-6.1A1.4 1.4 0 0 1 6.5 4h7a1.4 1.4 0 0 1 1.3.9L17 11v3.5a1.5 1.5 0 0 1-1.5 1.5h-11A1.5 1.5 0 0 1 3 14.5V11Zm0 0h4a3 3 0 0 0 6 0h4",
  cron: `${CIRCLE}M10 6v4l2.5 2`,
  usage: "M4 16v-5M8 16V5M12 16v-4M16 16V8",
  fleet: "M4.5 3.5h11a1 1 0 0 1 1 1v3a1 1 0 0 1-1 1h-11a1 1 0 0 1-1-1v-3a1 1 0 0 1 1-1ZM4.5 11.5h11a1 1 0 0 1 1 1v3a1 1 0 0 1-1 1h-11a1 1 0 0 1-1-1v-3a1 1 0 0 1 1-1ZM6.5 6h.01M6.5 14h.01",
  chat: "M4.5 4h11A1.5 1.5 0 0 1 17 5.5v7a1.5 1.5 0 0 1-1.5 1.5H9l-4 3v-3h-.5A1.5 1.5 0 0 1 3 12.5v-7A1.5 1.5 0 0 1 4.5 4Z",
  terminal: "M4 4h12a1 1 0 0 1 1 1v10a1 1 0 0 1-1 1H4a1 1 0 0 1-1-1V5a1 1 0 0 1 1-1ZM6 8l2.5 2L6 12M10.5 12.5H14",
  person: "M10 10a3 3 0 1 0 0-6 3 3 0 0 0 0 6ZM4 17a6 6 0 0 1 12 0",
  bell: "M10 3a4.5 4.5 0 0 0-4.5 4.5c0 4-1.5 5-1.5 5h12s-1.5-1-1.5-5A4.5 4.5 0 0 0 10 3ZM8.5 15.5a1.6 1.6 0 0 0 3 0",
  leave: "M12 4H5.5A1.5 1.5 0 0 0 4 5.5v9A1.5 1.5 0 0 0 5.5 16H12M9 10h8M14 7l3 3-3 3",
  send: "M10 16V4M5 9l5-5 5 5",
  stop: "M6.5 6.5h7v7h-7Z",
  attach: "M16 9.5l-6 6a3.5 3.5 0 0 1-5-5l6.5-6.5a2.3 2.3 0 0 1 3.3 3.3L8.3 13.8a1.1 1.1 0 0 1-1.6-1.6L12 7",
  camera: "M4.5 6.5H7l1.2-2h3.6l1.2 2h2.5A1.5 1.5 0 0 1 17 8v6.5a1.5 1.5 0 0 1-1.5 1.5h-11A1.5 1.5 0 0 1 3 14.5V8a1.5 1.5 0 0 1 1.5-1.5ZM10 13.5a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5Z",
  file: "M6 3h5.5l4 4v9a1 1 0 0 1-1 1H6a1 1 0 0 1-1-1V4a1 1 0 0 1 1-1ZM11.5 3v4h4",
  download: "M10 3v10M6 9.5l4 4 4-4M4 16.5h12",
  copy: "M8 7h7.5a1 1 0 0 1 1 1v7.5a1 1 0 0 1-1 1H8a1 1 0 0 1-1-1V8a1 1 0 0 1 1-1ZM4.5 13a1 1 0 0 1-1-1V4.5a1 1 0 0 1 1-1H12a1 1 0 0 1 1 1",
  check: "M4 10.5 8 14.5 16 6",
  close: "M5 5l10 10M15 5 5 15",
  more: "M5 10h.01M10 10h.01M15 10h.01",
  left: "M12 5l-5 5 5 5",
  right: "M8 5l5 5-5 5",
  up: "M5 12l5-5 5 5",
  down: "M5 8l5 5 5-5",
  info: `${CIRCLE}M10 9.5V14M10 6.5h.01`,
  warning: "M10 3.5 17.5 16h-15L10 3.5ZM10 8.5V12M10 14h.01",
  reply: "M8 5 4 9l4 4M4 9h7.5a4.5 4.5 0 0 1 4.5 4.5V15",
  smile: `${CIRCLE}M7 11.5s1 2 3 2 3-2 3-2M7.5 8h.01M12.5 8h.01`,
  edit: "M4 16l.8-3.2L13.5 4a1.6 1.6 0 0 1 2.3 2.3L7.2 15.2 4 16Z",
  pause: "M7 5v10M13 5v10",
  play: "M6.5 4.5l9 5.5-9 5.5Z",
  link: "M8.5 11.5a3 3 0 0 0 4.3 0l2.5-2.5A3 3 0 0 0 11 4.7l-1 1M11.5 8.5a3 3 0 0 0-4.3 0L4.7 11A3 3 0 0 0 9 15.3l1-1",
  keyboard: "M3.5 5.5h13a1 1 0 0 1 1 1v7a1 1 0 0 1-1 1h-13a1 1 0 0 1-1-1v-7a1 1 0 0 1 1-1ZM5.5 8.5h.01M8.5 8.5h.01M11.5 8.5h.01M14.5 8.5h.01M7 11.5h6",
  filter: "M3 5.5h14M6 10h8M8.5 14.5h3",
  // states, drawn as shapes
  works: "M10 15.5a5.5 5.5 0 1 0 0-11 5.5 5.5 0 0 0 0 11Z",
  unread: "M10 14a4 4 0 1 0 0-8 4 4 0 0 0 0 8Z",
  asks: "M10 4l6 6-6 6-6-6Z",
  waits: "M10 4.5a5.5 5.5 0 0 1 0 11",
  failed: "M5.5 5.5l9 9M14.5 5.5l-9 9",
};

/** Return an icon, which screen readers skip. */
export function icon(name) {
  const made = document.createElementNS(SVG, "svg"), path = document.createElementNS(SVG, "path");
  for (const [key, value] of [["class", `icon icon-${name}`], ["viewBox", "0 0 20 20"], ["aria-hidden", "true"]]) made.setAttribute(key, value);
  path.setAttribute("d", PATHS[name]);
  made.append(path);
  return made;
}

/** Return a square button that shows only an icon; `label` is its name and its tooltip. */
export function iconButton(name, label, onclick, attributes = {}) {
  return button(icon(name), onclick, { "aria-label": label, title: label, ...attributes, class: ["icon-button", attributes.class].filter(Boolean).join(" ") });
}

/** Return a state as a shape: `works`, `unread`, `asks`, `waits` or `failed`. Screen readers read `text`. */
export function stateMark(name, text) {
  return el("span", { class: `state ${name}`, title: text }, icon(name), el("span", { class: "unseen", text }));
}
