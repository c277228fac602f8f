// The form of a cron job: its name, message, schedule and session.

import { button, el, newId, problemLine, setMessage } from "./dom.js";
import { homeKey } from "./session_keys.js";

const ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone;
/** The kinds of schedules, each with its name, and the label and attributes of its field. */
const KINDS = {
  cron: ["By the clock", "Minute, hour, day, month, weekday", { type: "text", placeholder: "0 9 * * MON-FRI" }],
  every: ["Repeatedly", "Minutes from one run to the next", { type: "number", min: "1", step: "1" }],
  at: ["Once", "Date and time", { type: "datetime-local" }],
};

/** Return the form of a job, null for a new one; `onDone()` is called once it is saved or cancelled. */
export function jobForm(link, { job = null, onDone }) {
  const name = el("input", { type: "text", required: true, maxlength: "100", value: job?.name ?? "" });
  const message = el("textarea", { required: true, rows: "3" }, job?.message ?? "");
  const kind = el("select", { onchange: showKind }, Object.entries(KINDS).map(([each, [text]]) => el("option", { value: each, text })));
  const value = el("input", { required: true }), label = el("span");
  const zone = el("input", { type: "text", value: job?.schedule.tz ?? ZONE });
  const zoned = field("Time zone", zone);
  const target = el("select", { required: true });
  const problem = problemLine();
  const element = el("form", { class: "job-form", "aria-label": job ? "Change the job" : "New job", onsubmit: submit, oninput: () => { unsentId = null; } },
    field("Name", name), field("What the agent is told", message), field("When", kind), el("label", {}, label, value), zoned,
    job ? null : field("The conversation that gets the message", target), problem,
    el("div", { class: "choices" }, el("button", { type: "submit" }, job ? "Save" : "Add"), button("Cancel", onDone)));
  const old = job?.schedule ?? {};
  let unsentId = null;  // the idempotency key of a new job, so that repeated attempts add it once

  function showKind() {
    const [, text, attributes] = KINDS[kind.value];
    label.textContent = text;
    for (const attribute of ["min", "step", "placeholder"]) value.removeAttribute(attribute);
    for (const [attribute, each] of Object.entries(attributes)) value.setAttribute(attribute, each);
    zoned.hidden = kind.value === "every";
  }

  function values() {
    const schedule = { [kind.value]: kind.value === "every" ? Math.round(Number(value.value) * 60) : value.value.trim() };
    if (kind.value !== "every" && zone.value.trim()) schedule.tz = zone.value.trim();
    return { name: name.value.trim(), message: message.value.trim(), schedule };
  }

  async function submit(event) {
    event.preventDefault();
    const entered = values();
    try {
      if (!job) {
        unsentId ??= newId();
        await link.call("cron.add", { job: { ...entered, sessionKey: target.value } }, { idempotencyKey: unsentId });
      } else {
        // Only changed fields are sent: setting the schedule restarts its interval.
        const updates = Object.fromEntries(Object.entries(entered).filter(([each, text]) => JSON.stringify(text) !== JSON.stringify(initial[each])));
        if (Object.keys(updates).length) await link.call("cron.update", { jobId: job.id, updates });
      }
      onDone();
    } catch (error) {
      if (!error.retryable) unsentId = null;
      setMessage(problem, error.message);
    }
  }

  async function offerTargets() {
    const { sessions } = await link.call("sessions.search", { limit: 200 }).catch(() => ({ sessions: [] }));
    const own = homeKey();
    const keys = new Map(sessions.map((session) => [session.key, `${session.channel} · ${session.label ?? session.title ?? session.key}`]));
    if (own && !keys.has(own)) keys.set(own, "web · your chat");
    target.append(...[...keys].map(([key, text]) => el("option", { value: key, text, selected: key === own })));
  }

  kind.value = Object.keys(KINDS).find((each) => each in old) ?? "cron";
  showKind();
  value.value = old.every ? old.every / 60 : old.cron ?? old.at?.slice(0, 16) ?? "";
  const initial = values();
  if (!job) offerTargets();
  return element;
}

function field(text, input) {
  return el("label", {}, el("span", { text }), input);
}
