// Places of the page whose modules are fetched when a person goes there: the chat opens with less.

import { el, fill } from "./dom.js";

/** Return what is shown in the place of a part that could not be fetched. */
export function notLoaded() {
  return el("p", { class: "problem", role: "alert", text: "This part of the page could not be loaded: reload the page." });
}

/** Return a view that becomes the one of the function that `load()` resolves to. */
export function later(title, load, ...about) {
  const heading = el("h1", { text: title });
  const element = el("div", { class: "later" }, heading);
  let view = null, isConnected = false, isClosed = false;

  function made(open) {
    if (isClosed) return;
    view = open(...about);
    const hasFocus = element.contains(document.activeElement);
    fill(element, view.element);
    const own = element.querySelector("h1");
    own.tabIndex = -1;
    if (hasFocus) own.focus();
    if (isConnected) view.connected?.();
  }

  load().then(made, () => {
    element.append(notLoaded());
  });
  return {
    element,
    connected: () => { isConnected = true; return view?.connected?.(); },
    told: (frame) => view?.told?.(frame),
    close: () => { isClosed = true; view?.close?.(); },
  };
}
