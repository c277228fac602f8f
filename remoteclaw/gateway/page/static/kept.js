// Lists and tables that are looked at again and again: what has not changed stays as it is, with
// the focus and the words that a person has selected in it.

import { duration, el, fill } from "./dom.js";

/** Return what shows items in a box, a row of `draw(item)` for each; `home` gets the focus of a row that goes. */
export function kept(box, { tag = "li", key, draw, home = null }) {
  const rows = new Map();
  return (items) => {
    const ids = new Set(items.map(key));
    for (const [id, row] of rows) {
      if (ids.has(id)) continue;
      if (row.element.contains(document.activeElement)) home?.focus();
      row.element.remove();
      rows.delete(id);
    }
    items.forEach((item, place) => {
      const id = key(item), told = JSON.stringify(item);
      if (!rows.has(id)) rows.set(id, { element: el(tag, { role: tag === "tr" ? "row" : null }), told: "" });
      const row = rows.get(id);
      if (row.told !== told) fill(row.element, draw(item));
      row.told = told;
      if (box.children[place] !== row.element) box.insertBefore(row.element, box.children[place] ?? null);
    });
  };
}

/** Return a table, which is a list on phones: its roles are named, since styles would take them away. */
export function table(label, heads, { key, cells, empty }) {
  const body = el("tbody", { role: "rowgroup" });
  const notice = el("p", { class: "notice", text: empty });
  const made = el("table", { role: "table", "aria-label": label },
    el("thead", { role: "rowgroup" }, el("tr", { role: "row" },
      heads.map((head) => el("th", { role: "columnheader", scope: "col", text: head })))), body);
  const rows = kept(body, { tag: "tr", key, draw: (item) => cells(item).map((cell, column) =>
    el("td", { role: "cell", "data-head": heads[column] }, el("div", {}, cell))) });
  return {
    element: el("div", { class: "kept" }, made, notice),
    show: (items) => {
      made.hidden = !items.length;
      notice.hidden = items.length > 0;
      rows(items);
    },
  };
}

/** Return a sentence of the gateway's with what stands between backticks as code. */
export function coded(text) {
  return text.split("`").map((part, place) => place % 2 ? el("code", { text: part }) : part);
}

/** Return a moment of which is shown how long ago it was; `aged()` keeps that right. */
export function since(ms) {
  return ms ? el("time", { datetime: new Date(ms).toISOString(), "data-since": String(ms) }) : "";
}

export function aged(element, nowMs) {
  for (const each of element.querySelectorAll("time[data-since]")) {
    const words = duration(Math.max(0, Math.round((nowMs - Number(each.dataset.since)) / 1000) * 1000));
    if (each.textContent !== words) each.textContent = words;
  }
}
