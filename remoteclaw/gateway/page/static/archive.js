// The ended conversations of a session.

import { button, count, el, fill, problemLine, say, stamp } from "./dom.js";
import { item } from "./messages.js";

const PAGE = 100;

/** Return the list of them, which is looked for when it is opened, or by `look`. */
export function archivePanel(link, sessionKey) {
  const list = el("ul", { class: "ended-list" });
  const element = el("details", { class: "archive", ontoggle: () => element.open && look() },
    el("summary", { text: "Ended conversations" }), list);

  async function look() {
    try {
      const { ended } = await link.call("sessions.archive", { sessionKey });
      fill(list, ended.length ? ended.map((one) => conversation(link, sessionKey, one)) : el("li", { class: "notice", text: "None is kept." }));
    } catch (error) {
      fill(list, el("li", { class: "problem", text: error.message }));
    }
  }

  return { element, look: () => element.open && look() };
}

function conversation(link, sessionKey, { endedMs, messages, why }) {
  const items = el("ol", { class: "messages" });
  const earlier = button("Earlier", look, { hidden: true });
  const problem = problemLine();
  const element = el("details", { ontoggle: () => element.open && !items.children.length && look() },
    el("summary", {}, stamp(endedMs), ` · ${count(messages)} ${messages === 1 ? "message" : "messages"} · ${why}`),
    problem, earlier, items);
  let before = null;

  async function look() {
    try {
      const told = await link.call("sessions.archived", { sessionKey, endedMs, limit: PAGE, ...(before ? { before } : {}) });
      before = told.before;
      earlier.hidden = !before;
      items.prepend(...told.items.map((each) => item(each)));
    } catch (error) {
      say(problem, error.message);
    }
  }

  return el("li", {}, element);
}
