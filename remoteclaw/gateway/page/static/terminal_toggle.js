// The button that switches between a conversation and its terminal, which is loaded on first use.

import { el } from "./dom.js";
import { iconButton } from "./icons.js";
import { notLoaded } from "./lazy_view.js";

/** The prefix of the keys in the session storage of sessions whose terminal is shown. */
const SHOWN = "remoteclaw.terminal ";

/** Return the button that shows a session's terminal in place of its conversation. */
export function terminalToggle(link, sessionKey, conversation) {
  const toggle = iconButton("terminal", "Terminal", () => show(!isShown()), { class: "terminal-toggle", "aria-pressed": "false" });
  let pane = null, isClosed = false;

  const isShown = () => toggle.ariaPressed === "true";

  async function show(isOn) {
    toggle.ariaPressed = String(isOn);
    conversation.classList.toggle("shows-terminal", isOn);
    if (isOn) sessionStorage.setItem(SHOWN + sessionKey, "1");
    else sessionStorage.removeItem(SHOWN + sessionKey);
    if (isOn && !pane) await mount();
    if (isOn && isShown()) pane?.focus();
  }

  async function mount() {
    const loaded = await import("./terminal_pane.js").catch(() => null);
    if (isClosed) return;
    if (!loaded) return conversation.append(el("div", { class: "terminal" }, notLoaded()));
    pane = await loaded.terminalPane(link, sessionKey);
    if (isClosed) return pane.close();
    conversation.append(pane.element);
    pane.enter();
  }

  function close() {
    isClosed = true;
    pane?.close();
  }

  const isAsked = location.hash.startsWith("#/s/") && location.hash.endsWith("/terminal");  // by a notification
  if (isAsked || sessionStorage.getItem(SHOWN + sessionKey)) show(true);  // it was shown before a reload
  return { element: toggle, close };
}
