// Places of the page whose modules are fetched when a person goes there: the chat opens with less.

import { el, fill } from "./dom.js";

/** Return what is shown in the place of a part that could not be fetched. */
export function notLoaded() {
  return el("p", { class: "problem", role: "alert", text: "This part of the page could not be loaded: reload the page." });
}

let looks = null;  // once fetched, for all of them

function look() {
  return looks ??= new Promise((done) => document.head.append(
    el("link", { rel: "stylesheet", href: "/page/places.css", onload: done, onerror: done })));
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

  Promise.all([load(), look()]).then(([open]) => made(open), () => element.append(notLoaded()));
  return {
    element,
    connected: () => { isConnected = true; return view?.connected?.(); },
    told: (frame) => view?.told?.(frame),
    close: () => { isClosed = true; view?.close?.(); },
  };
}
