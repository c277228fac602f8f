// Lists and tables that are updated in place: unchanged rows keep their focus and selected text.

import { duration, el, fill } from "./dom.js";

/** Return a function that shows items as rows of `draw(item)` in a box; `home` gets the focus of a removed row. */
export function updatedRows(box, { tag = "li", key, draw, home = null }) {
  const rows = new Map();
  return (items) => {
    const ids = new Set(items.map(key));
    for (const [id, row] of rows) {
      if (ids.has(id)) continue;
      if (row.element.contains(document.activeElement)) home?.focus();
      row.element.remove();
      rows.delete(id);
    }
    items.forEach((item, index) => {
      const id = key(item), drawn = JSON.stringify(item);
      if (!rows.has(id)) rows.set(id, { element: el(tag, { role: tag === "tr" ? "row" : null }), drawn: "" });
      const row = rows.get(id);
      if (row.drawn !== drawn) redraw(row.element, draw(item));
      row.drawn = drawn;
      if (box.children[index] !== row.element) box.insertBefore(row.element, box.children[index] ?? null);
    });
  };
}

/** Replace the children of a row; the focus stays on its link or button with the same text. */
function redraw(element, children) {
  const focused = element.contains(document.activeElement) ? document.activeElement : null;
  fill(element, children);
  if (focused) [...element.querySelectorAll("a, button")].find((each) => each.textContent === focused.textContent)?.focus();
}

/**
 * Return a table, which is a list on phones. Its roles are explicit, because the styles would remove them. With `isNumeric`,
 * all columns but the first one are numbers.
 */
export function table(label, heads, { key, cells, empty, isNumeric = false }) {
  const body = el("tbody", { role: "rowgroup" });
  const notice = el("p", { class: "notice", text: empty });
  const made = el("table", { role: "table", class: isNumeric ? "stacking numbers" : "stacking", "aria-label": label },
    el("thead", { role: "rowgroup" }, el("tr", { role: "row" },
      heads.map((head) => el("th", { role: "columnheader", scope: "col", text: head })))), body);
  const showRows = updatedRows(body, { tag: "tr", key, draw: (item) => cells(item).map((cell, column) =>
    el("td", { role: "cell", "data-head": heads[column] }, el("div", {}, cell))) });
  return {
    element: el("div", {}, made, notice),
    show: (items) => {
      made.hidden = !items.length;
      notice.hidden = items.length > 0;
      showRows(items);
      hideEmptyColumns(made);
    },
  };
}

/** Hide the columns of a table in which no row has anything. */
function hideEmptyColumns(made) {
  const [head, ...rows] = made.rows;
  [...head.cells].forEach((cell, column) => {
    const isEmpty = rows.every((row) => !row.cells[column].textContent && !row.cells[column].querySelector("time"));
    for (const each of [cell, ...rows.map((row) => row.cells[column])]) each.hidden = isEmpty;
  });
}

/** Return large numbers with their labels: `show(items)` gets items with `label`, `value`, and perhaps `about` and `href`. */
export function figures(label) {
  const element = el("dl", { class: "figures", "aria-label": label });
  const show = updatedRows(element, { tag: "div", key: (item) => item.label, draw: ({ label: name, value, about, href }) => [
    el("dt", {}, href ? el("a", { href, text: name }) : name), el("dd", { class: "figure", text: value }),
    about ? el("dd", { class: "about", text: about }) : null].filter(Boolean) });
  return { element, show };
}

/** Return a sentence in which the text between backticks is code. */
export function withCode(text) {
  return text.split("`").map((part, index) => index % 2 ? el("code", { text: part }) : part);
}

/** Return a time element that shows how long ago a time was, once `updateAges()` is called. */
export function age(ms) {
  return ms ? el("time", { datetime: new Date(ms).toISOString(), "data-since": String(ms) }) : "";
}

/** Return how long ago a time was, as text. */
export function ageText(ms, nowMs) {
  return duration(Math.max(0, Math.round((nowMs - ms) / 1000) * 1000));
}

/** Update all elements of `age()`. */
export function updateAges(element, nowMs) {
  for (const each of element.querySelectorAll("time[data-since]")) {
    const text = ageText(Number(each.dataset.since), nowMs);
    if (each.textContent !== text) each.textContent = text;
  }
}
