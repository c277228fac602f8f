// What `remoteclaw doctor` finds on the gateway's computer, when a person asks.

import { busy, button, count, el, fill, moment } from "./dom.js";
import { coded } from "./kept.js";

/** `found(findings)` is told of those that are not right. */
export function doctorPart(link, found) {
  const told = el("p", { class: "told", role: "status", text: "It checks all that RemoteClaw needs on the gateway's computer, and takes some seconds." });
  const result = el("div", { class: "findings" });
  const run = button("Run the doctor", () => busy([run], ask));

  async function ask() {
    told.textContent = "The doctor looks …";
    try {
      const { host, atMs, findings } = await link.call("doctor");
      const bad = findings.filter((finding) => !finding.ok), well = findings.filter((finding) => finding.ok);
      told.textContent = bad.length
        ? `On ${host} at ${moment(atMs)}: ${count(bad.length)} of ${count(findings.length)} are not right.`
        : `On ${host} at ${moment(atMs)}: all is well.`;
      fill(result,
        listOf(bad, "bad"),
        el("details", {}, el("summary", { text: `What is right (${count(well.length)})` }), listOf(well, "well")));
      found(bad);
    } catch (error) {
      told.textContent = error.message;
    }
  }

  return el("section", { "aria-label": "Doctor" }, el("h2", { text: "Doctor" }), told, run, result);
}

function listOf(findings, kind) {
  return el("ul", { class: kind }, findings.map((finding) =>
    el("li", {}, el("strong", { text: finding.subject }), " ", coded(finding.text))));
}
