// The form with which an operator writes in any session, under the operator's name.

import { el, newId, problemLine, setMessage } from "./dom.js";
import { icon } from "./icons.js";

const NOTICE = "The agent and its chat are told that you wrote this on the page. The answer goes to the chat.";

/** Return the form, hidden from those who may not write; `onSent` receives each message as a record's item. */
export function sessionComposer(link, sessionKey, onSent) {
  const text = el("textarea", { rows: "1", dir: "auto", "aria-label": "Message to this session", placeholder: "Write in this session",
    onkeydown: (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); send(); }
    },
    oninput: () => { unsentId = null; notice.textContent = NOTICE; } });  // a changed text is another message
  const problem = problemLine();
  const notice = el("p", { class: "about", role: "status", text: NOTICE });
  const form = el("form", { onsubmit: (event) => { event.preventDefault(); send(); } },
    problem, el("div", { class: "box" }, text,
      el("div", { class: "strip" }, notice, el("button", { type: "submit", class: "send icon-button", "aria-label": "Send", title: "Send" }, icon("send")))));
  let unsentId = null;  // the idempotency key of the message, so that repeated attempts send it once

  async function send() {
    if (!text.value.trim() || element.hasAttribute("aria-busy")) return;
    element.setAttribute("aria-busy", "true");
    unsentId ??= newId();
    setMessage(problem, "");
    try {
      const message = text.value;
      const { runId, who } = await link.call("sessions.write", { sessionKey, message }, { idempotencyKey: unsentId });
      onSent({ role: "user", from: who, text: message, at: Number(runId.split("-")[1]) });
      unsentId = null;
      text.value = "";
      notice.textContent = "Sent: it is answered when its turn comes.";
    } catch (error) {
      if (!error.retryable) unsentId = null;
      setMessage(problem, error.retryable ? `Perhaps not sent: ${error.message} Send it again; it counts once.` : error.message);
    } finally {
      element.removeAttribute("aria-busy");
    }
  }

  const refusal = el("p", { class: "about", text: "Writing here needs the scope admin." });
  const element = el("div", { class: "composer", hidden: true }, form, refusal);
  return { element, onConnected: () => {
    element.hidden = false;
    form.hidden = !link.scopes.includes("admin");
    refusal.hidden = !form.hidden;
  } };
}
