// The details of a session below “About”. Their module is loaded when a user opens them.

import { el } from "./dom.js";
import { notLoaded } from "./lazy_view.js";

/** Return the details; `show(facts)` updates them if they are loaded. */
export function aboutSession(link, sessionKey) {
  const element = el("details", { class: "session-panel", ontoggle: open }, el("summary", { text: "About" }));
  let panel = null;

  async function open() {
    if (!element.open) return;
    const loaded = await import("./session_panel.js").catch(() => null);
    if (!loaded) return element.append(notLoaded());
    if (!panel) element.append((panel = loaded.sessionPanel(link, sessionKey)).element);
    panel.refresh();
  }

  return { element, show: (facts) => panel?.show(facts) };
}
