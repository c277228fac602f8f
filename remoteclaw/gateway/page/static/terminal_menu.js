// Popovers of a terminal's bar: a menu of rare actions, and panels with more than a button.

import { button, el } from "./dom.js";
import { icon, iconButton } from "./icons.js";

let made = 0;  // the popovers so far, for their ids

/** Return a popover with `children`, and the button that opens it, which shows the icon `name`. */
export function popover(name, label, ...children) {
  const id = `tty-popover-${made += 1}`;
  const panel = el("div", { id, class: "tty-popover", popover: true, role: "dialog", "aria-label": label }, children);
  const opener = iconButton(name, label, () => {}, { popovertarget: id });
  const onOpen = (listener) => panel.addEventListener("beforetoggle", ({ newState }) => { if (newState === "open") listener(); });
  onOpen(() => place(opener));

  /** Put the popover below an element, at its right. */
  function place(anchor) {
    const { bottom, right } = anchor.getBoundingClientRect();
    if (!right) return;  // it is hidden
    panel.style.setProperty("--top", `${bottom}px`);
    panel.style.setProperty("--right", `${document.documentElement.clientWidth - right}px`);
  }

  function open(anchor) {
    place(anchor);
    panel.showPopover();
  }

  function close() {
    if (panel.matches(":popover-open")) panel.hidePopover();
  }

  return { panel, opener, onOpen, open, close };
}

/** Return an item of a menu. */
export function menuItem(name, text, onclick) {
  return button([icon(name), el("span", { text })], onclick, { class: "row" });
}
