// Views whose modules are loaded when they are opened first, so that the chat loads faster.

import { bar, el, fill, view as frame } from "./dom.js";

/** Return the message in place of a view that could not be loaded. */
export function notLoaded() {
  return el("p", { class: "problem", role: "alert", text: "This part of the page could not be loaded: reload the page." });
}

let styles = null;  // resolves once the style sheet of these views is loaded

function loadStyles() {
  return styles ??= new Promise((done) => document.head.append(
    el("link", { rel: "stylesheet", href: "/page/data.css", onload: done, onerror: done })));
}

/** Return a view that is filled once `load()` resolves to a function: with the view that this returns for `args`. */
export function lazyView(title, load, ...args) {
  const element = el("div", { class: "lazy-view" }, frame(bar(title)));
  let view = null, isConnected = false, isClosed = false;

  function show(open) {
    if (isClosed) return;
    view = open(...args);
    const hasFocus = element.contains(document.activeElement);
    fill(element, view.element);
    const newHeading = element.querySelector("h1");
    newHeading.tabIndex = -1;
    if (hasFocus) newHeading.focus();
    if (isConnected) view.onConnected?.();
  }

  Promise.all([load(), loadStyles()]).then(([open]) => show(open), () => element.querySelector(".content").append(notLoaded()));
  return {
    element,
    onConnected: () => { isConnected = true; return view?.onConnected?.(); },
    onEvent: (frame) => view?.onEvent?.(frame),
    close: () => { isClosed = true; view?.close?.(); },
  };
}
