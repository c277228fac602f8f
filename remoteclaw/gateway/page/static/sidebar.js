// The sidebar: what to do and where to go, the conversations, and the person's menu.

import { button, count, el } from "./dom.js";
import { icon } from "./icons.js";
import { PALETTE_KEY } from "./keys.js";

/** The views, by the first part of their addresses. */
export const VIEWS = [["requests", "Requests"], ["cron", "Cron"], ["usage", "Usage"], ["fleet", "Fleet"]];

/** Return the sidebar around the list of conversations; `menu` is the content of the person's menu. */
export function sidebar({ find, conversations, menu }) {
  const badge = el("span", { class: "badge", hidden: true });
  const brand = el("a", { class: "brand", href: "#/", "data-route": "" }, icon("mark"), "RemoteClaw");
  const links = VIEWS.map(([route, name]) => el("a", { class: "row", href: `#/${route}`, "data-route": route }, icon(route), name, route === "requests" ? badge : null));
  const name = el("span", { class: "who" }), letter = el("span", { class: "letter", "aria-hidden": "true" });
  const popover = el("div", { id: "person", class: "popover", popover: true }, menu);
  const person = el("button", { class: "row person", type: "button", popovertarget: "person" }, letter, name, icon("up"));
  const element = el("aside", { id: "sidebar", "aria-label": "Sidebar" },
    brand,
    button([icon("search"), "Search or run…", el("kbd", { "aria-hidden": "true", text: PALETTE_KEY })], find, { class: "find", "aria-keyshortcuts": "Control+K Meta+K" }),
    el("nav", { "aria-label": "Main" }, conversations.begin, links),
    conversations.element,
    el("div", { class: "foot" }, person, popover));

  /** Mark the row of the shown view. */
  function mark(route) {
    for (const each of [brand, ...links]) {
      if (each.dataset.route === route) each.setAttribute("aria-current", "page");
      else each.removeAttribute("aria-current");
    }
  }

  function setRequests(open) {
    badge.hidden = !open;
    badge.textContent = count(open);
    badge.parentElement.setAttribute("aria-label", open ? `Requests, ${count(open)} open` : "Requests");
  }

  function setPerson(text) {
    name.textContent = text;
    letter.textContent = [...text][0] ?? "";
  }

  return { element, mark, setRequests, setPerson };
}
