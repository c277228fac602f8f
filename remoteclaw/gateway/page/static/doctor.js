// The findings of `remoteclaw doctor` on the gateway's computer; it runs when a user starts it.

import { whileBusy, button, count, el, fill, moment } from "./dom.js";
import { icon } from "./icons.js";
import { withCode } from "./tables.js";

/** Return the doctor: its button, `run()`, and an element with what it says; `onProblems` receives what is not right. */
export function doctor(link, onProblems) {
  const note = el("p", { class: "about", role: "status" });
  const right = el("div");
  const start = button("Run the doctor", run, { title: "Check all that RemoteClaw needs on the gateway's computer; this takes some seconds." });

  function run() {
    return whileBusy([start], async () => {
      note.textContent = "The doctor is running …";
      try {
        const { host, atMs, findings } = await link.call("doctor");
        const bad = findings.filter((finding) => !finding.ok), well = findings.filter((finding) => finding.ok);
        note.textContent = bad.length
          ? `The doctor has checked ${host} at ${moment(atMs)}: ${count(bad.length)} of ${count(findings.length)} are not right.`
          : `The doctor has checked ${host} at ${moment(atMs)}: all is well.`;
        fill(right, el("details", {}, el("summary", { text: `What is right (${count(well.length)})` }),
          el("ul", { class: "right" }, well.map((finding) => el("li", {}, icon(finding.absent ? "info" : "check"), el("p", {}, el("strong", { text: finding.subject }), " ", ...withCode(finding.text)))))));
        onProblems(bad);
      } catch (error) {
        note.textContent = error.message;
      }
    });
  }

  return { button: start, run, element: el("div", { class: "doctor" }, note, right) };
}
