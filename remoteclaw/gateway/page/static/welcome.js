// What an empty chat shows: who answers, what the agent may do, and examples.

import { button, el } from "./dom.js";
import { icon } from "./icons.js";

/** What the agent may do, by its setting `permissions`. */
const RIGHTS = {
  ask: "It reads files in this directory, and asks you before it changes anything or runs a command.",
  edits: "It reads and changes files in this directory, and asks you before it runs a command.",
  auto: "It uses all of its tools without asking you.",
  deny: "It answers, and uses none of its tools.",
};
const EXAMPLES = ["Explain what this project does, and where I should begin to read.", "Find a failing test, and tell me why it fails.", "What has changed here in the last week?"];
/** What the demo agent can show. */
const DEMO_EXAMPLES = ["What can you do?", "slow", "file"];

/** Return what is shown in the opened, empty `chat`; `write(text)` puts an example into the composer. */
export function welcome(chat, write) {
  const isDemo = chat.runtime === "demo";
  return el("div", { class: "welcome" },
    icon("mark"),
    el("p", { class: "who" }, el("strong", { text: chat.agent }), " answers here"),
    el("p", { class: "about" }, [chat.runtime, chat.model].filter(Boolean).join(" · "), " in ", el("code", { text: chat.workspace })),
    el("p", { text: isDemo
      ? "It is a demo without a model. To work with an agent, install Claude Code, Codex, Gemini CLI or OpenCode on this computer and sign in to it."
      : RIGHTS[chat.permissions] }),
    isDemo ? el("p", { class: "about" }, el("code", { text: "remoteclaw doctor" }), " shows which of them it finds.") : null,
    el("ul", { class: "examples", "aria-label": "Examples" }, (isDemo ? DEMO_EXAMPLES : EXAMPLES).map((text) => el("li", {}, button(text, () => write(text))))),
    el("p", { class: "about keys" }, el("kbd", { text: "/" }), " for commands, ", el("kbd", { text: "@" }), " for files; files can be dropped or pasted."));
}
