// What a view shows while it has nothing to list.

import { el } from "./dom.js";
import { icon } from "./icons.js";

/** Return an icon, what the view lists, what to do next, and perhaps a button for it. */
export function emptyState(name, what, next, action = null) {
  return el("div", { class: "empty-state" }, icon(name), el("h2", { text: what }), el("p", { text: next }), action);
}
