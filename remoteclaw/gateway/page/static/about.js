// What is known of a session, behind the word About: fetched when a person opens it.

import { el } from "./dom.js";
import { notLoaded } from "./later.js";

/** Return it; `show(facts)` brings it up to date, if it is there. */
export function aboutSession(link, sessionKey) {
  const element = el("details", { class: "session-panel", ontoggle: open }, el("summary", { text: "About" }));
  let panel = null;

  async function open() {
    if (!element.open) return;
    const loaded = await import("./session_panel.js").catch(() => null);
    if (!loaded) return element.append(notLoaded());
    if (!panel) element.append((panel = loaded.sessionPanel(link, sessionKey)).element);
    panel.look();
  }

  return { element, show: (facts) => panel?.show(facts) };
}
