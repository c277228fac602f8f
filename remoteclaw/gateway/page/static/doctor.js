// The findings of `remoteclaw doctor` on the gateway's computer; it runs when a user starts it.

import { whileBusy, button, count, el, fill, moment } from "./dom.js";
import { withCode } from "./tables.js";

/** Return the doctor's section; `onProblems` receives the findings that are not right. */
export function doctorSection(link, onProblems) {
  const note = el("p", { class: "note", role: "status", text: "It checks all that RemoteClaw needs on the gateway's computer, and takes some seconds." });
  const result = el("div", { class: "findings" });
  const run = button("Run the doctor", () => whileBusy([run], examine));

  async function examine() {
    note.textContent = "The doctor is running …";
    try {
      const { host, atMs, findings } = await link.call("doctor");
      const bad = findings.filter((finding) => !finding.ok), well = findings.filter((finding) => finding.ok);
      note.textContent = bad.length
        ? `On ${host} at ${moment(atMs)}: ${count(bad.length)} of ${count(findings.length)} are not right.`
        : `On ${host} at ${moment(atMs)}: all is well.`;
      fill(result,
        listOf(bad, "bad"),
        el("details", {}, el("summary", { text: `What is right (${count(well.length)})` }), listOf(well, "well")));
      onProblems(bad);
    } catch (error) {
      note.textContent = error.message;
    }
  }

  return el("section", { "aria-label": "Doctor" }, el("h2", { text: "Doctor" }), note, run, result);
}

function listOf(findings, kind) {
  return el("ul", { class: kind }, findings.map((finding) =>
    el("li", {}, el("strong", { text: finding.subject }), " ", withCode(finding.text))));
}
