// The trace of a session: the states that its messages passed through, with times, by turn.

import { button, duration, el, fill, setMessage, stamp } from "./dom.js";

/** How many messages are loaded at once. */
const PAGE = 10;
const exactTime = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", fractionalSecondDigits: 3 });

/** Return the trace, which is loaded when it is opened. */
export function tracePanel(link, sessionKey) {
  const turns = el("ol", { class: "turns" });
  const note = el("p", { class: "notice", role: "status", hidden: true });
  const earlier = button("Earlier", () => load(before), { hidden: true });
  const reload = button("Refresh", open);
  const element = el("details", { class: "trace", ontoggle: () => element.open && open() },
    el("summary", { text: "Trace" }), reload, turns, note, earlier);
  let before = null;

  function open() {
    fill(turns);
    return load(sessionKey);
  }

  /** Append the messages of a session or, for a reference, those before it. */
  async function load(what) {
    setMessage(note, "");
    try {
      const trace = await link.call("sessions.trace", { what, limit: PAGE });
      before = trace.before;
      earlier.hidden = !before;
      turns.append(...byTurn(trace.messages).map(turn));
    } catch (error) {
      earlier.hidden = true;
      setMessage(note, error.message);
    }
  }

  return element;
}

/** Return the messages as lists, one for each turn. */
function byTurn(messages) {
  const turns = [];
  for (const message of messages) {
    const last = turns.at(-1);
    if (message.turn && last?.[0].turn === message.turn) last.push(message);
    else turns.push([message]);
  }
  return turns;
}

function turn(messages) {
  const [newest] = messages, oldest = messages.at(-1);
  const took = newest.usage?.durationMs ? ` in ${duration(newest.usage.durationMs)}` : "";
  const many = messages.length > 1 ? `, ${messages.length} messages together` : "";
  return el("li", {},
    el("h2", {}, stamp(oldest.steps[0].atMs), ` ${newest.status}${took}${many}`),
    messages.map(steps),
    newest.error ? el("p", { class: "problem", text: [newest.error.category, newest.error.detail].filter(Boolean).join(": ") }) : null);
}

function steps(message) {
  const first = message.steps[0].atMs;
  return el("div", { class: "table", tabindex: "0" }, el("table", { class: "steps" },
    el("caption", {}, "Message ", el("code", { text: message.reference })),
    el("thead", {}, el("tr", {}, ["Time", "After", "Step", "Detail"].map((text) => el("th", { scope: "col", text })))),
    el("tbody", {}, message.steps.map((step) => el("tr", {},
      el("td", {}, el("time", { text: exactTime.format(step.atMs) })),
      el("td", { text: duration(step.atMs - first) }),
      el("td", { text: step.attempt > 1 ? `${step.name}, attempt ${step.attempt}` : step.name }),
      el("td", { text: step.detail }))))));
}
