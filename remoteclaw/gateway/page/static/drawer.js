// The sidebar on a phone: a drawer over the page, opened by a button.

import { count, el } from "./dom.js";
import { icon } from "./icons.js";

/** Return the button of a drawer; the element `rest` is inert while the drawer is open. */
export function drawer(aside, rest) {
  const badge = el("span", { class: "badge", hidden: true });
  const button = el("button", { class: "menu icon-button", type: "button", "aria-label": "Menu", "aria-expanded": "false", "aria-controls": aside.id,
    onclick: () => (isOpen() ? close() : open()) }, icon("menu"), badge);
  const isOpen = () => "menu" in document.body.dataset;

  function open() {
    document.body.dataset.menu = "";
    button.setAttribute("aria-expanded", "true");
    rest.inert = true;
    aside.querySelector("nav a:not([hidden])").focus();
  }

  function close() {
    if (!isOpen()) return;
    delete document.body.dataset.menu;
    button.setAttribute("aria-expanded", "false");
    rest.inert = false;
    button.focus();
  }

  function setRequests(requests) {
    badge.hidden = !requests;
    badge.textContent = count(requests);
    button.setAttribute("aria-label", requests ? `Menu, ${count(requests)} requests open` : "Menu");
  }

  document.addEventListener("keydown", ({ key }) => {
    if (key === "Escape" && !document.querySelector(":popover-open")) close();
  });
  document.addEventListener("pointerdown", ({ target }) => {
    if (!aside.contains(target) && !button.contains(target)) close();
  });
  return { button, close, setRequests };
}
