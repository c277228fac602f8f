// The details of a session below “About”. Their module is loaded when a user opens them.

import { el } from "./dom.js";
import { icon } from "./icons.js";
import { notLoaded } from "./lazy_view.js";

/** Return the details; `show(facts)` updates them if they are loaded. */
export function aboutSession(link, sessionKey) {
  const element = el("details", { class: "session-panel", ontoggle: open, onkeydown: leave }, el("summary", { class: "icon-button", title: "About", "aria-label": "About" }, icon("info")));
  let panel = null;

  async function open() {
    if (!element.open) return;
    const loaded = await import("./session_panel.js").catch(() => null);
    if (!loaded) return element.append(notLoaded());
    if (!panel) element.append((panel = loaded.sessionPanel(link, sessionKey)).element);
    panel.refresh();
  }

  /** Close the details with Escape; the focus returns to their button. */
  function leave(event) {
    if (event.key !== "Escape" || !element.open) return;
    event.stopPropagation();
    element.open = false;
    element.querySelector("summary").focus();
  }

  return { element, show: (facts) => panel?.show(facts) };
}
