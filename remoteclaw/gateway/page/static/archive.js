// The ended conversations of a session.

import { button, count, el, fill, problemLine, setMessage, stamp } from "./dom.js";
import { item } from "./messages.js";

/** How many messages are loaded at once. */
const PAGE = 100;

/** Return the list, which is loaded when it is opened, and again by `refresh()`. */
export function archivePanel(link, sessionKey) {
  const list = el("ul", { class: "ended-list" });
  const element = el("details", { class: "archive", ontoggle: () => element.open && refresh() },
    el("summary", { text: "Ended conversations" }), list);

  async function refresh() {
    try {
      const { ended } = await link.call("sessions.archive", { sessionKey });
      fill(list, ended.length ? ended.map((each) => conversation(link, sessionKey, each)) : el("li", { class: "notice", text: "There are none." }));
    } catch (error) {
      fill(list, el("li", { class: "problem", text: error.message }));
    }
  }

  return { element, refresh: () => element.open && refresh() };
}

function conversation(link, sessionKey, { endedMs, messages, why }) {
  const items = el("ol", { class: "messages" });
  const earlier = button("Earlier", loadMore, { hidden: true });
  const problem = problemLine();
  const element = el("details", { ontoggle: () => element.open && !items.children.length && loadMore() },
    el("summary", {}, stamp(endedMs), ` · ${count(messages)} ${messages === 1 ? "message" : "messages"} · ${why}`),
    problem, earlier, items);
  let before = null;

  async function loadMore() {
    try {
      const archived = await link.call("sessions.history", { sessionKey, endedMs, limit: PAGE, ...(before ? { before } : {}) });
      before = archived.before;
      earlier.hidden = !before;
      items.prepend(...archived.items.map((each) => item(each)));
    } catch (error) {
      setMessage(problem, error.message);
    }
  }

  return el("li", {}, element);
}
