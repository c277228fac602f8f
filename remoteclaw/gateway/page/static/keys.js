// The keys of the page, and the dialog that lists them.

import { openDialog } from "./dialog.js";
import { el } from "./dom.js";
import { iconButton } from "./icons.js";

/** The views, by the key after G. */
const PLACES = { h: "", r: "requests", c: "cron", u: "usage", f: "fleet" };
/** How long the second key may take, in milliseconds. */
const SECOND_MS = 1500;
/** What has the keys J and K: the items of a view, or else the conversations. */
const ITEMS = ["main :is(.request, .job)", ".sessions a"];
const IS_MAC = /Mac|iPhone|iPad/.test(navigator.platform);

/** The key that opens the palette, as people write it. */
export const PALETTE_KEY = IS_MAC ? "⌘ K" : "Ctrl K";
const KEYS = [
  [[PALETTE_KEY], "Search conversations, or run a command"],
  [["J"], ["K"], "Next, previous item"],
  [["A"], ["D"], "Allow, deny the focused request"],
  [["G", "H"], "Chat"], [["G", "R"], "Requests"], [["G", "C"], "Cron"], [["G", "U"], "Usage"], [["G", "F"], "Fleet"],
  [["Enter"], "Send the message"], [["Shift", "Enter"], "Begin a new line"],
  [["?"], "These keys"],
];

/** Listen for the page's keys; `openPalette()` shows the palette. Without a dialog, and outside of fields and terminals. */
export function listenForKeys(openPalette) {
  let wentAt = 0;  // when G was pressed

  document.addEventListener("keydown", (event) => {
    const { key, target } = event;
    if (event.defaultPrevented || event.isComposing || event.altKey || target.closest(".terminal")) return;
    if (event.ctrlKey || event.metaKey) {
      if (key.toLowerCase() === "k" && !event.shiftKey && !document.querySelector("dialog[open]")) {
        event.preventDefault();
        openPalette();
      }
      return;
    }
    if (document.querySelector("dialog[open]") || target.closest("input, textarea, select")) return;
    const isSecond = event.timeStamp - wentAt < SECOND_MS && key in PLACES;
    wentAt = key === "g" ? event.timeStamp : 0;
    if (isSecond) location.hash = `#/${PLACES[key]}`;
    else if (key === "j" || key === "k") move(key === "j" ? 1 : -1);
    else if (key === "?") showKeys();
    else return;
    event.preventDefault();
  });
}

/** Move the focus by `step` items. */
function move(step) {
  const items = ITEMS.map((each) => [...document.querySelectorAll(each)].filter((item) => item.checkVisibility())).find((each) => each.length) ?? [];
  const at = items.findIndex((each) => each.contains(document.activeElement));
  items[at < 0 ? 0 : Math.max(0, Math.min(items.length - 1, at + step))]?.focus();
}

/** Show the keys. */
export function showKeys() {
  const close = iconButton("close", "Close", () => dialog.close());
  const dialog = openDialog({ class: "keys", "aria-labelledby": "keys-title" },
    el("div", { class: "head-row" }, el("h2", { id: "keys-title", text: "Keys" }), close),
    el("dl", {}, KEYS.flatMap((row) => [
      el("dt", {}, row.slice(0, -1).map((keys) => el("span", {}, keys.map((each) => el("kbd", { text: each }))))),
      el("dd", { text: row.at(-1) })])));
}
