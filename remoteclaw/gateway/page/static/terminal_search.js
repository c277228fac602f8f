// The search in a terminal: in all rows that the gateway keeps, not only in those that are loaded.

import { count, el } from "./dom.js";
import { iconButton } from "./icons.js";

/** How long typing has to pause before it is searched. */
const PAUSE_MS = 200;
const supportsHighlights = typeof Highlight === "function" && Boolean(CSS.highlights);

/**
 * Return the search bar. `find(text)` resolves to a result of `terminals.search`, `show(row, rows)` shows a row and
 * resolves to its element, `rows()` returns the elements of the shown rows by their numbers, and `onClose()` is called when it is closed.
 */
export function terminalSearch({ find, show, rows, onClose }) {
  const field = el("input", { type: "text", enterkeyhint: "search", "aria-label": "Search in the terminal", placeholder: "Search", maxlength: "200", autocomplete: "off", spellcheck: "false",
    oninput: () => { clearTimeout(timer); timer = setTimeout(search, PAUSE_MS); }, onkeydown: onKey });
  const status = el("span", { class: "tty-count", role: "status" });
  const [earlier, later] = [iconButton("up", "Earlier match", () => step(-1)), iconButton("down", "Later match", () => step(1))];
  const element = el("div", { class: "tty-search", role: "search", hidden: true }, field, status, earlier, later, iconButton("close", "Close the search", close));
  let found = [], total = 0, scrollback = 0, current = 0;  // the matches, each with its row and its number within it
  let searched = "", timer = null, requests = 0;

  const isOpen = () => !element.hidden;

  function open() {
    element.hidden = false;
    field.focus({ preventScroll: true });
    field.select();
    if (field.value) search();
  }

  function close() {
    if (!isOpen()) return;
    requests += 1;
    clearTimeout(timer);
    element.hidden = true;
    searched = "";
    found = [];
    mark();
    onClose();
  }

  function onKey(event) {
    if (event.key === "Escape") close();
    else if (event.key === "Enter" && !event.isComposing) field.value === searched ? step(event.shiftKey ? 1 : -1) : search();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** Search the text of the field, and show the newest match. */
  async function search() {
    clearTimeout(timer);
    const request = ++requests, text = field.value;
    searched = text;
    found = [];
    if (!text) { status.textContent = ""; return mark(); }
    try {
      const result = await find(text);
      if (request !== requests) return;
      ({ total, scrollback } = result);
      found = result.rows.flatMap(({ row, count: times }) => Array.from({ length: times }, (_, index) => ({ row, index })));
      current = found.length - 1;
      await showCurrent();
    } catch (error) {
      if (request === requests) status.textContent = error.message;
    }
  }

  async function step(by) {
    if (!found.length) return;
    current = (current + by + found.length) % found.length;
    await showCurrent();
  }

  async function showCurrent() {
    const hidden = total - found.length;  // the gateway names the newest ones only
    status.textContent = found.length ? `${count(hidden + current + 1)} of ${count(total)}` : "Not found";
    for (const each of [earlier, later]) each.disabled = !found.length;
    if (found.length) await show(found[current].row, scrollback);
    mark();
  }

  /** Mark all matches in the shown rows, and the current one. */
  function mark() {
    const shown = rows(), wanted = searched.toLowerCase();
    const all = [], now = [];
    for (const [number, row] of shown) {
      row.classList.remove("tty-found", "tty-found-now");
      if (!wanted || !isOpen()) continue;
      rangesOf(row, wanted).forEach((range, index) => {
        const isNow = found[current]?.row === number && found[current].index === index;
        (isNow ? now : all).push(range);
        if (!supportsHighlights) row.classList.add(isNow ? "tty-found-now" : "tty-found");
      });
    }
    if (!supportsHighlights) return;
    for (const [name, ranges] of [["tty-found", all], ["tty-found-now", now]]) {
      if (ranges.length) CSS.highlights.set(name, new Highlight(...ranges));
      else CSS.highlights.delete(name);
    }
  }

  return { element, open, close, mark, isOpen };
}

/** Return the ranges of a text in a row; a match may be in several elements. */
function rangesOf(row, wanted) {
  const text = row.textContent.toLowerCase(), ranges = [];
  if (text.length !== row.textContent.length) return ranges;  // a letter whose lower case is longer
  for (let at = text.indexOf(wanted); at >= 0; at = text.indexOf(wanted, at + wanted.length)) {
    const range = document.createRange();
    range.setStart(...pointAt(row, at));
    range.setEnd(...pointAt(row, at + wanted.length));
    ranges.push(range);
  }
  return ranges;
}

/** Return the text node and the offset in it of a position in a row's text. */
function pointAt(row, position) {
  const walker = document.createTreeWalker(row, NodeFilter.SHOW_TEXT);
  let node = walker.nextNode();
  while (node && position > node.length) {
    position -= node.length;
    node = walker.nextNode();
  }
  return [node ?? row, node ? position : 0];
}
