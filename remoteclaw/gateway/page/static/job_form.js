// The form of a cron job: its name, what the agent is told, when, and where it answers.

import { button, el, id, problemLine, say } from "./dom.js";
import { ownFirst } from "./session_keys.js";

const ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone;
/** How a schedule is written, by its kind: the label of its field, and the field. */
const KINDS = {
  cron: ["By the clock", "Minute, hour, day, month, weekday", { type: "text", placeholder: "0 9 * * MON-FRI" }],
  every: ["Repeatedly", "Minutes from one run to the next", { type: "number", min: "1", step: "1" }],
  at: ["Once", "Date and time", { type: "datetime-local" }],
};

/** Return the form of a job, or of a new one; `done()` is called once the gateway has taken it. */
export function jobForm(link, { job = null, done }) {
  const name = el("input", { type: "text", required: true, maxlength: "100", value: job?.name ?? "" });
  const message = el("textarea", { required: true, rows: "3" }, job?.message ?? "");
  const kind = el("select", { onchange: chosen }, Object.entries(KINDS).map(([each, [words]]) => el("option", { value: each, text: words })));
  const value = el("input", { required: true }), label = el("span");
  const zone = el("input", { type: "text", value: job?.schedule.tz ?? ZONE });
  const zoned = field("Time zone", zone);
  const target = el("select", { required: true });
  const problem = problemLine();
  const element = el("form", { class: "job-form", "aria-label": job ? "Change the job" : "New job", onsubmit: submit, oninput: () => { unsent = null; } },
    field("Name", name), field("What the agent is told", message), field("When", kind), el("label", {}, label, value), zoned,
    job ? null : field("The conversation that it is told in", target), problem,
    el("div", { class: "choices" }, el("button", { type: "submit" }, job ? "Save" : "Add"), button("Cancel", done)));
  const old = job?.schedule ?? {};
  let unsent = null;  // names what is being added, so that it is added once however often

  function chosen() {
    const [, words, attributes] = KINDS[kind.value];
    label.textContent = words;
    for (const attribute of ["min", "step", "placeholder"]) value.removeAttribute(attribute);
    for (const [attribute, each] of Object.entries(attributes)) value.setAttribute(attribute, each);
    zoned.hidden = kind.value === "every";
  }

  function entered() {
    const schedule = { [kind.value]: kind.value === "every" ? Math.round(Number(value.value) * 60) : value.value.trim() };
    if (kind.value !== "every" && zone.value.trim()) schedule.tz = zone.value.trim();
    return { name: name.value.trim(), message: message.value.trim(), schedule };
  }

  async function submit(event) {
    event.preventDefault();
    const now = entered();
    try {
      if (!job) {
        unsent ??= id();
        await link.call("cron.add", { job: { ...now, sessionKey: target.value } }, { idempotencyKey: unsent });
      } else {
        // What is not changed stays as it is: a new schedule would be counted from now.
        const updates = Object.fromEntries(Object.entries(now).filter(([each, text]) => JSON.stringify(text) !== JSON.stringify(before[each])));
        if (Object.keys(updates).length) await link.call("cron.update", { jobId: job.id, updates });
      }
      done();
    } catch (error) {
      if (!error.retryable) unsent = null;
      say(problem, error.message);
    }
  }

  async function offerTargets() {
    const { sessions } = await link.call("sessions.list", { limit: 200 }).catch(() => ({ sessions: [] }));
    const own = ownFirst();
    const keys = new Map(sessions.map((session) => [session.key, `${session.channel} · ${session.label ?? session.title ?? session.key}`]));
    if (own && !keys.has(own)) keys.set(own, "web · your chat");
    target.append(...[...keys].map(([key, text]) => el("option", { value: key, text, selected: key === own })));
  }

  kind.value = Object.keys(KINDS).find((each) => each in old) ?? "cron";
  chosen();
  value.value = old.every ? old.every / 60 : old.cron ?? old.at?.slice(0, 16) ?? "";
  const before = entered();
  if (!job) offerTargets();
  return element;
}

function field(text, input) {
  return el("label", {}, el("span", { text }), input);
}
