// The details of a session, and actions of operators on it.

import { confirmButtons } from "./actions.js";
import { archivePanel } from "./archive.js";
import { count, dollars, duration, el, fill, moment, pauseOf, problemLine, setMessage } from "./dom.js";
import { sessionLink } from "./session_keys.js";
import { tracePanel } from "./trace.js";

/** The queue modes with their meaning. */
const MODES = {
  aside: "aside: a new message is answered during the running turn",
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
  const ending = el("div", { class: "choices" }, confirmButtons(["End the conversation", "Keep it", "End it: the next message begins a new one"], () => act(reset)));
  const element = el("div", { class: "inside" }, facts, labelling, queueing, ending, problem, done,
    archive.element, tracePanel(link, sessionKey));
  let saved = "";

  async function refresh() {
    try {
      show(await link.call("sessions.show", { sessionKey }));
    } catch (error) {
      setMessage(problem, error.message);
    }
  }

  /** Show the result of `sessions.show`. */
  function show(session) {
    const { queue, usage } = session;
    fill(facts,
      fact("Conversation", session.title),
      fact("Key", el("code", { text: session.key })),
      fact("Agent", [session.agent, session.model, session.project && `project ${session.project}`].filter(Boolean).join(" · ")),
      fact("Context", session.context && `${session.context.percent} % · ${count(session.context.used)} of ${count(session.context.limit)} tokens`),
      fact("State", [session.state, session.host && `on ${session.host}`, session.waiting && `${count(session.waiting)} waiting`,
        pauseOf(session)].filter(Boolean).join(" · ")),
      fact("Last message", moment(session.lastMessageMs)),
      fact("Started by", session.startedBy && sessionLink(session.startedBy, session.startedBy)),
      fact("Has started", session.hasStarted.length ? session.hasStarted.map(({ key }) => el("div", {}, sessionLink(key, key))) : null),
      fact("Queue", `${MODES[queue.mode]}; ${queue.debounceMs ? `after ${duration(queue.debounceMs)} of quiet` : "at once"}; ${queue.cap ? `at most ${count(queue.cap)}, then ${queue.drop}` : "any number"}`),
      fact("Usage", usage && `${count(usage.turns)} ${usage.turns === 1 ? "turn" : "turns"} · ${count(usage.inputTokens + usage.cacheWriteTokens + usage.outputTokens)} tokens${usage.costUsd ? ` · ${dollars(usage.costUsd)}` : ""} · ${duration(usage.durationMs)}`));
    labelling.hidden = !link.scopes.includes("write");
    queueing.hidden = ending.hidden = !link.scopes.includes("admin");
    if (label.value === saved) label.value = session.label ?? "";  // else the user is editing it
    saved = session.label ?? "";
    mode.value = queue.own.includes("mode") ? queue.mode : "";
  }

  async function saveLabel() {
    const text = label.value.trim();
    await link.call("sessions.label", { sessionKey, ...(text ? { label: text } : {}) });
    element.dispatchEvent(new CustomEvent("labelled", { bubbles: true, detail: text }));
    return text ? `It is called ${text}.` : "It has no label any more.";
  }

  async function saveMode() {
    const updated = await link.call("sessions.queue", { sessionKey, ...(mode.value ? { mode: mode.value } : { reset: true }) });
    return `From the next turn on: ${MODES[updated.mode]}.`;
  }

  async function reset() {
    await link.call("sessions.reset", { sessionKey });
    archive.refresh();
    return "The conversation has ended, and is kept below.";
  }

  async function act(action) {
    setMessage(problem, "");
    done.textContent = "";
    try {
      done.textContent = await action();
    } catch (error) {
      setMessage(problem, error.message);
    }
    await refresh();
  }

  return { element, refresh, show };
}

function fact(term, value) {
  return value ? [el("dt", { text: term }), el("dd", {}, value)] : [];
}
