// The form of a cron job. It begins with its schedule in words, which the gateway reads while the person types.

import { button, el, fill, newId, problemLine, setMessage } from "./dom.js";
import { homeKey } from "./session_keys.js";

const ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone;
/** How long the person pauses before the words are read. */
const PAUSE_MS = 150;
/** Schedules to begin with, which a click writes into the field. */
const EXAMPLES = ["every weekday at 9", "every 20 minutes", "on the 1st of every month at 8", "tomorrow at noon"];
/** A job without a name is called by so many characters of its message. */
const NAME_CHARS = 40;

/** Return the form of a job, null for a new one; `onDone()` is called once it is saved or cancelled. */
export function jobForm(link, { job = null, onDone }) {
  const when = el("input", { type: "text", required: true, maxlength: "200", autocomplete: "off", spellcheck: "false", value: job?.words ?? "", placeholder: EXAMPLES[0], oninput: readLater });
  const echo = el("div", { class: "echo", role: "status", id: newId() });
  when.setAttribute("aria-describedby", echo.id);
  const message = el("textarea", { required: true, rows: "3" }, job?.message ?? "");
  const name = el("input", { type: "text", maxlength: "100", value: job?.name ?? "", placeholder: "else the beginning of the message" });
  const target = el("select", { required: true });
  const problem = problemLine();
  const element = el("form", { class: "job-form", "aria-label": job ? "Change the job" : "New job", onsubmit: submit, oninput: () => { unsentId = null; } },
    field("When?", when), echo, field("What is the agent told?", message),
    job ? null : field("In which conversation?", target), field("Name", name), problem,
    el("div", { class: "choices" }, el("button", { type: "submit" }, job ? "Save" : "Add the job"), button("Cancel", onDone)));
  let unsentId = null;  // the idempotency key of a new job, so that repeated attempts add it once
  let timer = null, reads = 0;

  function schedule() {
    return { words: when.value.trim(), tz: job?.zone ?? ZONE };
  }

  function readLater() {
    clearTimeout(timer);
    timer = setTimeout(read, PAUSE_MS);
  }

  /** Show what the words mean, and when the job would be due next; or why they mean nothing. */
  async function read() {
    const number = reads += 1;
    if (!when.value.trim()) {
      when.ariaInvalid = null;
      return fill(echo, examples());
    }
    const shown = await link.call("cron.preview", { schedule: schedule() }).then(
      (preview) => ({ preview }), (error) => ({ error }));
    if (number !== reads) return;  // the person has typed on
    when.ariaInvalid = shown.error ? "true" : null;
    fill(echo, shown.error ? refusal(shown.error.message) : [
      el("p", {}, el("strong", { text: shown.preview.words }), el("span", { class: "about", text: ` ${shown.preview.zone}` })),
      el("ol", { class: "upcoming", "aria-label": "The next times" }, shown.preview.upcoming.map((time) => el("li", { text: timeIn(time, shown.preview.zone) })))]);
  }

  /** Return why the words mean nothing. The examples at the end of the sentence are buttons instead. */
  function refusal(message) {
    const [why, others] = message.split(/: write for example /);
    return [el("p", { class: "refused", text: others ? `${why}.` : message }), others ? examples() : []].flat();
  }

  function examples() {
    return [el("span", { class: "about", text: "For example:" }), ...EXAMPLES.map((text) => button(text, () => { when.value = text; when.focus(); read(); }, { class: "example" }))];
  }

  async function submit(event) {
    event.preventDefault();
    const entered = { name: name.value.trim() || message.value.trim().slice(0, NAME_CHARS), message: message.value.trim() };
    try {
      if (!job) {
        unsentId ??= newId();
        await link.call("cron.add", { job: { ...entered, schedule: schedule(), sessionKey: target.value } }, { idempotencyKey: unsentId });
      } else {
        // Only changed fields are sent: setting the schedule restarts its interval.
        const updates = Object.fromEntries(Object.entries(entered).filter(([each, text]) => text !== job[each]));
        if (when.value.trim() !== job.words) updates.schedule = schedule();
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
    const keys = new Map(sessions.map((session) => [session.key, `${session.label ?? session.title ?? session.key} · ${session.channel}`]));
    if (own && !keys.has(own)) keys.set(own, "your conversation on this page");
    target.append(...[...keys].map(([key, text]) => el("option", { value: key, text, selected: key === own })));
  }

  if (!job) offerTargets();
  read();
  return element;
}

/** Return a time as text, in its own zone. */
export function timeIn(iso, zone) {
  return new Intl.DateTimeFormat(undefined, { weekday: "short", day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", timeZone: zone }).format(new Date(iso));
}

function field(text, input) {
  return el("label", {}, el("span", { text }), input);
}
