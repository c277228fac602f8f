// The open requests of all sessions, and the view that lists them.

import { bar, button, el, fill, stamp, view } from "./dom.js";
import { emptyState } from "./empty_state.js";
import { icon } from "./icons.js";
import { body, briefly, choices, deadline, headline, iconOf, outcome } from "./request_card.js";
import { sessionLink } from "./session_keys.js";

/** The requests that can be answered. It dispatches `change` when they have changed. */
export class OpenRequests extends EventTarget {
  list = [];
  isKnown = false;

  constructor(link) {
    super();
    let end = () => {};
    link.addEventListener("state", ({ detail }) => {
      if (detail !== "connected") return;  // the last list stays
      end();
      end = link.follow("requests.list", {}, ({ requests }) => {
        this.list = requests;
        this.isKnown = true;
        this.dispatchEvent(new Event("change"));
      });
    });
  }
}

export function requestsView(link, open) {
  const notice = emptyState("check", "Nothing waits for you", "When an agent wants to do what it may not do unasked, it asks here and in its chat.",
    el("a", { class: "button", href: "#/", text: "Write to your agent" }));
  const { element, refresh, close } = requestList(link, open, { onCount: (count) => { notice.hidden = count > 0 || !open.isKnown; } });
  return {
    element: view(bar("Requests"), element, notice),
    onConnected: refresh,
    close,
  };
}

/** Return the list of the open requests for which `fits(request)`; `onCount` receives their number. */
export function requestList(link, open, { fits = () => true, onCount = () => {} }) {
  const element = el("ul", { class: "requests" });
  const items = new Map();

  function refresh() {
    const fitting = open.list.filter(fits);
    const openIds = new Set(fitting.map((request) => request.id));
    for (const request of fitting) {
      if (!items.has(request.id)) {
        items.set(request.id, requestItem(link, request));
        element.append(items.get(request.id).element);
      } else items.get(request.id).show(request);
    }
    for (const [id, item] of items) {
      if (!openIds.has(id)) item.follow();  // it stays, and shows its outcome
    }
    onCount(openIds.size);
  }

  open.addEventListener("change", refresh);
  function close() {
    open.removeEventListener("change", refresh);
    items.forEach((item) => item.close());
  }

  return { element, refresh, close };
}

/** Return an item in which a request is answered, and which then is one line with the outcome, which opens. */
function requestItem(link, request) {
  const until = el("p", { class: "about until" });
  const done = el("span", { class: "done", role: "status" });
  const what = el("div", { class: "what" }, body(request));
  const more = request.isCut ? button("Show all of it", showAll) : null;
  const answering = link.scopes.includes("admin") ? choices(request, answer)
    : el("p", { class: "about", text: "To answer needs a login with the scope admin." });
  const box = el("details", { open: true },
    el("summary", {}, icon("right"), el("span", { class: "what-was", dir: "auto", text: briefly(request) }), done),
    el("div", { class: "asked" }, icon(iconOf(request)),
      el("h2", { text: headline(request) }), stamp(request.askedMs),
      el("p", { class: "about" }, facts(request))),
    request.unshown ? el("p", { class: "problem", text: `That chat does not show it: ${request.unshown}` }) : null,
    what, more,
    request.isAgain ? el("p", { text: "An earlier try at this was cut off: it may have been done already." }) : null,
    request.change?.needsRestart.length ? el("p", { class: "about", text: `It would take effect after a restart: ${request.change.needsRestart.join(", ")}.` }) : null,
    answering, until);
  const element = el("li", { class: `request ${request.kind}`, tabindex: "-1", onkeydown: onKey }, box);
  let isOver = false;  // whether nothing will change any more
  let unfollow = () => {};

  function show(now) {
    if (isOver) return;
    const text = deadline(now);
    if (until.textContent !== text) until.textContent = text;
    if (["open", "lapsed"].includes(now.state)) return;
    isOver = now.kind !== "change" || now.state !== "answered";  // an allowed change is carried out yet
    const hadFocus = element.contains(document.activeElement);
    if (answering.isConnected) box.open = false;
    answering.remove();
    until.remove();
    element.classList.add("over");
    done.textContent = outcome(now);
    if (hadFocus) element.focus();
    if (isOver) unfollow();
  }

  /** Show the request, which can't be answered any more, until nothing will change. */
  function follow() {
    unfollow();
    if (!isOver) unfollow = link.follow("requests.show", { id: request.id }, show, () => show({ ...request, state: "void", untilMs: null }));
  }

  async function answer(verdict, reason) {
    const reply = await link.call("requests.answer", { id: request.id, verdict, reason });
    show(await link.call("requests.show", { id: request.id }));
    if (answering.isConnected) throw new Error(reply.detail);
  }

  async function showAll() {
    const full = await link.call("requests.show", { id: request.id });
    fill(what, body(full));
    more.remove();
  }

  /** Answer by the key of a choice. */
  function onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input")) return;
    element.querySelector(`[aria-keyshortcuts="${CSS.escape(event.key.toUpperCase())}"]`)?.click();
  }

  show(request);
  return { element, show, follow, close: () => unfollow() };
}

/** Return in which conversation, where, and for whom an agent asks. */
function facts({ sessionKey, title, kind, change, where, people, chat }) {
  const place = kind === "change" ? change.host : where;
  return [sessionLink(sessionKey, title ?? undefined),
    place && el("code", { text: place }),
    people.length && `for ${people.join(", ")}`,
    chat && `asked in ${chat}`,
  ].filter(Boolean).map((part) => el("span", {}, part));
}
