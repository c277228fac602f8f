// What is wrong in the fleet: the problems that it reports, dead letters, and what the doctor has found.

import { copy } from "./clipboard.js";
import { button, count, el, newId } from "./dom.js";
import { deadLetters } from "./dead_letters.js";
import { doctor } from "./doctor.js";
import { icon } from "./icons.js";
import { updatedRows, withCode } from "./tables.js";

/** How many dead letters are listed. */
const MAX_LETTERS = 50;

/** The names of parts of the fleet that people don't know by the name that they have in the fleet. */
const SUBJECTS = { "dead letters": "Given up", redis: "Memory" };

function subjectOf(subject) {
  return SUBJECTS[subject] ?? sentence(subject.replace(/^channel /, ""));
}

function sentence(text) {
  return text.charAt(0).toLocaleUpperCase() + text.slice(1);
}

/** Return the section with all problems; each has a sentence, what to do, and a button. `check` runs the doctor. */
export function attention(link) {
  const letters = deadLetters(link);
  const examination = doctor(link, (findings) => { found = findings; draw(); });
  const list = el("ul", { class: "wrong" });
  const well = el("p", { class: "well", hidden: true }, icon("check"), "All well");
  const title = el("h2", { id: newId(), text: "Needs attention" });
  const element = el("section", { "aria-labelledby": title.id }, title, well, list, letters.element, examination.element);
  const showRows = updatedRows(list, { key: ({ subject, text }) => `${subject} ${text}`, draw: drawItem });
  let status = null, found = [];

  function drawItem({ subject, text }) {
    return [icon("warning"), el("p", {}, el("strong", { text: subjectOf(subject) }), " ", ...withCode(sentence(text))), remedyOf(subject, text)];
  }

  /** Return the button of a problem: it opens the dead letters, copies the command, or has the doctor look again. */
  function remedyOf(subject, text) {
    if (subject === "dead letters") return letters.toggle;
    const command = text.split("`").find((part, index) => index % 2 && part.startsWith("remoteclaw "));
    if (!command) return button("Check again", examination.run);
    const copying = button([icon("copy"), "Copy command"], () => copy(command, copying), { title: command });
    return copying;
  }

  function draw() {
    const reported = status?.problems ?? [];
    const isReported = (finding) => reported.some((each) => each.subject === finding.subject);
    const dead = status?.deadLetters ? [{ subject: "dead letters", text: status.deadLetters === 1
      ? "One message or answer was given up: read why, then try it again or drop it."
      : `${count(status.deadLetters)} messages or answers were given up: read why, then try them again or drop them.` }] : [];
    // The list of dead letters follows.
    const items = [...reported, ...found.filter((finding) => !isReported(finding)), ...dead].map(({ subject, text }) => ({ subject, text }));
    showRows(items);
    well.hidden = items.length > 0;
    title.classList.toggle("unseen", !items.length);
  }

  return {
    element, check: examination.button,
    show: (result) => { status = result; draw(); },
    follow: (fail) => link.follow("deadletters.list", { limit: MAX_LETTERS }, (dead) => letters.show(dead.letters, dead.count), fail),
  };
}
