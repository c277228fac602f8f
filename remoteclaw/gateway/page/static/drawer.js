// The list of conversations on a phone: a drawer over the page, opened by a button.

import { el } from "./dom.js";

/** Return the button of a drawer; the element `rest` is inert while the drawer is open. */
export function drawer(aside, rest) {
  const button = el("button", { class: "menu", type: "button", "aria-label": "Conversations", "aria-expanded": "false", "aria-controls": aside.id,
    onclick: () => (isOpen() ? close() : open()) }, "☰");
  const isOpen = () => "menu" in document.body.dataset;

  function open() {
    document.body.dataset.menu = "";
    button.setAttribute("aria-expanded", "true");
    rest.inert = true;
    aside.querySelector("a, button, input")?.focus();
  }

  function close() {
    if (!isOpen()) return;
    delete document.body.dataset.menu;
    button.setAttribute("aria-expanded", "false");
    rest.inert = false;
    button.focus();
  }

  document.addEventListener("keydown", ({ key }) => { if (key === "Escape") close(); });
  document.addEventListener("pointerdown", ({ target }) => {
    if (!aside.contains(target) && !button.contains(target)) close();
  });
  return { button, close };
}
