// The trace of a session: every state that its messages passed through, with times, by turn.

import { button, duration, el, fill, say, stamp } from "./dom.js";

const PAGE = 10;
const exactly = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", fractionalSecondDigits: 3 });

/** Return the trace, which is looked for when it is opened. */
export function tracePanel(link, sessionKey) {
  const turns = el("ol", { class: "turns" });
  const note = el("p", { class: "notice", role: "status", hidden: true });
  const earlier = button("Earlier", () => look(before), { hidden: true });
  const again = button("Look again", open);
  const element = el("details", { class: "trace", ontoggle: () => element.open && open() },
    el("summary", { text: "Trace" }), again, turns, note, earlier);
  let before = null;

  function open() {
    fill(turns);
    return look(sessionKey);
  }

  async function look(what) {
    say(note, "");
    try {
      const told = await link.call("sessions.trace", { what, limit: PAGE });
      before = told.before;
      earlier.hidden = !before;
      turns.append(...byTurn(told.messages).map(turn));
    } catch (error) {
      earlier.hidden = true;
      say(note, error.message);
    }
  }

  return element;
}

/** Return messages that were answered together, together. */
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
      el("td", {}, el("time", { text: exactly.format(step.atMs) })),
      el("td", { text: duration(step.atMs - first) }),
      el("td", { text: step.attempt > 1 ? `${step.name}, attempt ${step.attempt}` : step.name }),
      el("td", { text: step.detail }))))));
}
