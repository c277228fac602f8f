// The status of a terminal: its state as a shape and as text, its writer, and its viewers.

import { count } from "./dom.js";

const STATES = { starting: "Starting", live: "", parked: "Parked", exited: "Ended", crashed: "Crashed", lost: "Lost" };
const ACTIVITIES = { busy: "Works", idle: "Waits for you to write", unknown: "Open" };
const SHAPES = { starting: "waits", parked: "pause", exited: "check", crashed: "failed", lost: "failed" };

/** Return the state of a terminal as text; the record is null if none was opened. */
export function stateOf(record, isElsewhere = false) {
  if (!record) return "No terminal is open here.";
  if (isElsewhere) return `Open on ${record.host}: use that computer's page.`;
  const { state, reason, activity, exit } = record;
  const more = {
    starting: reason && `needs you: a dialog is open (${reason})`,
    live: activity === "waiting" ? `Needs you: ${record.waitingFor || "it requests something"}` : ACTIVITIES[activity],
    parked: reason || "it can be resumed",
    exited: exit ? `with the status ${count(exit)}` : "",
    crashed: reason,
    lost: `${record.host} is away`,
  }[state];
  return [STATES[state] ?? state, more].filter(Boolean).join(" · ");
}

/** Return the icon for the state of a terminal, which is null if none was opened. */
export function shapeOf(record) {
  if (!record) return "terminal";
  if (needsPerson(record)) return "asks";
  return record.state === "live" ? { busy: "works", idle: "unread" }[record.activity] ?? "waits" : SHAPES[record.state] ?? "waits";
}

/** Return whether a terminal waits for a person: with a question, or with a dialog at its start. */
export function needsPerson({ state, reason, activity }) {
  return state === "starting" ? Boolean(reason) : state === "live" && activity === "waiting";
}

/** Return the writer and the number of viewers as text. */
export function peopleOf(record, isWriter) {
  const types = isWriter ? "You type" : record.writer ? `${record.writer} types` : "Nobody types";
  return `${types} · ${count(record.viewers)} ${record.viewers === 1 ? "watches" : "watch"}`;
}
