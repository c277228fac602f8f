// What is known of a session, and what operators can do about it.

import { twice } from "./actions.js";
import { archivePanel } from "./archive.js";
import { count, dollars, duration, el, fill, moment, problemLine, say } from "./dom.js";
import { sessionLink } from "./session_keys.js";
import { tracePanel } from "./trace.js";

const MODES = {
  aside: "aside: a new message is answered beside the running turn",
  collect: "collect: all that waits is answered in one turn",
  followup: "followup: each message has a turn of its own",
  steer: "steer: the agent gets it while it works",
  interrupt: "interrupt: the running turn is stopped for it",
};

export function sessionPanel(link, sessionKey) {
  const archive = archivePanel(link, sessionKey);
  const facts = el("dl", { class: "facts" });
  const problem = problemLine();
  const done = el("p", { class: "about", role: "status" });
  const label = el("input", { type: "text", maxlength: "64", name: "label", autocomplete: "off" });
  const labelling = el("form", { class: "setting", onsubmit: (event) => { event.preventDefault(); act(saveLabel); } },
    el("label", {}, "Label", label), el("button", { type: "submit" }, "Save"));
  const mode = el("select", { onchange: () => act(saveMode) },
    el("option", { value: "", text: "as configured" }), Object.keys(MODES).map((value) => el("option", { value, text: value })));
  const queueing = el("div", { class: "setting" }, el("label", {}, "While it is busy", mode));
  const ending = el("div", { class: "choices" }, twice(["End the conversation", "Keep it", "End it: the next message begins a new one"], () => act(reset)));
  const element = el("div", { class: "inside" }, facts, labelling, queueing, ending, problem, done,
    archive.element, tracePanel(link, sessionKey));
  let saved = "";

  async function look() {
    try {
      show(await link.call("sessions.show", { sessionKey }));
    } catch (error) {
      say(problem, error.message);
    }
  }

  function show(known) {
    const { queue, usage } = known;
    fill(facts,
      fact("Conversation", known.title),
      fact("Key", el("code", { text: known.key })),
      fact("Agent", [known.agent, known.model, known.project && `project ${known.project}`].filter(Boolean).join(" · ")),
      fact("State", [known.state, known.host && `on ${known.host}`, known.waiting && `${count(known.waiting)} waiting`,
        known.postponedUntilMs && `waits until ${moment(known.postponedUntilMs)} (${known.postponed})`].filter(Boolean).join(" · ")),
      fact("Last message", moment(known.lastMessageMs)),
      fact("Started by", known.startedBy && sessionLink(known.startedBy, known.startedBy)),
      fact("Has started", known.hasStarted.length ? known.hasStarted.map((key) => el("div", {}, sessionLink(key, key))) : null),
      fact("Queue", `${MODES[queue.mode]}; ${queue.debounceMs ? `after ${duration(queue.debounceMs)} of quiet` : "at once"}; ${queue.cap ? `at most ${count(queue.cap)}, then ${queue.drop}` : "any number"}`),
      fact("Usage", usage && `${count(usage.turns)} ${usage.turns === 1 ? "turn" : "turns"} · ${count(usage.inputTokens + usage.cacheWriteTokens + usage.outputTokens)} tokens${usage.costUsd ? ` · ${dollars(usage.costUsd)}` : ""} · ${duration(usage.durationMs)}`));
    labelling.hidden = !link.scopes.includes("write");
    queueing.hidden = ending.hidden = !link.scopes.includes("admin");
    if (label.value === saved) label.value = known.label ?? "";  // else somebody writes another one
    saved = known.label ?? "";
    mode.value = queue.own.includes("mode") ? queue.mode : "";
  }

  async function saveLabel() {
    const text = label.value.trim();
    await link.call("sessions.label", { sessionKey, ...(text ? { label: text } : {}) });
    return text ? `It is called ${text}.` : "It has no label any more.";
  }

  async function saveMode() {
    const set = await link.call("sessions.queue", { sessionKey, ...(mode.value ? { mode: mode.value } : { reset: true }) });
    return `From the next turn on: ${MODES[set.mode]}.`;
  }

  async function reset() {
    await link.call("sessions.reset", { sessionKey });
    archive.look();
    return "The conversation has ended, and is kept below.";
  }

  async function act(what) {
    say(problem, "");
    done.textContent = "";
    try {
      done.textContent = await what();
    } catch (error) {
      say(problem, error.message);
    }
    await look();
  }

  return { element, look, show };
}

function fact(term, value) {
  return value ? [el("dt", { text: term }), el("dd", {}, value)] : [];
}
