// The button between a conversation and its terminal, which is fetched when a person asks for it.

import { button, el } from "./dom.js";
import { notLoaded } from "./later.js";

const SHOWN = "remoteclaw.terminal ";

/** Return the button of a session's terminal, which is shown in the place of a conversation. */
export function terminalToggle(link, sessionKey, conversation) {
  const toggle = button("Terminal", () => show(!isShown()), { class: "terminal-toggle", "aria-pressed": "false" });
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
    const loaded = await import("./terminal.js").catch(() => null);
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

  if (sessionStorage.getItem(SHOWN + sessionKey)) show(true);  // it was before the page was loaded again
  return { element: toggle, close };
}
