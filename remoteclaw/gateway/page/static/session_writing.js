// Writing in any session, as an operator: the people in its chat see who has.

import { el, id, problemLine, say } from "./dom.js";

const NOTICE = "The agent and its chat are told that you wrote this on the page. The answer goes to the chat.";

/** Return the form, which is there for those who may; `sent` is given what was taken, as it is recorded. */
export function sessionWriting(link, sessionKey, sent) {
  const text = el("textarea", { rows: "2", "aria-label": "Message to this session", placeholder: "Write in this session",
    onkeydown: (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); send(); }
    },
    oninput: () => { unsent = null; told.textContent = NOTICE; } });  // other words are another message
  const problem = problemLine();
  const told = el("p", { class: "about", role: "status", text: NOTICE });
  const element = el("form", { class: "composer", hidden: true, onsubmit: (event) => { event.preventDefault(); send(); } },
    problem, told, el("div", { class: "row" }, text, el("button", { type: "submit" }, "Send")));
  let unsent = null;  // names what is being sent, so that it is sent once however often

  async function send() {
    if (!text.value.trim() || element.hasAttribute("aria-busy")) return;
    element.setAttribute("aria-busy", "true");
    unsent ??= id();
    say(problem, "");
    try {
      const message = text.value;
      const { runId, who } = await link.call("sessions.write", { sessionKey, message }, { idempotencyKey: unsent });
      sent({ role: "user", from: who, text: message, at: Number(runId.split("-")[1]) });
      unsent = null;
      text.value = "";
      told.textContent = "Sent: it is answered when its turn comes.";
    } catch (error) {
      if (!error.retryable) unsent = null;
      say(problem, error.retryable ? `Perhaps not sent: ${error.message} Send it again; it counts once.` : error.message);
    } finally {
      element.removeAttribute("aria-busy");
    }
  }

  return { element, connected: () => { element.hidden = !link.scopes.includes("admin"); } };
}
