// A conversation: one's own on the page, or any session that is read here.

import { ago, count, el, fill, moment, rendered, size } from "./dom.js";
import { card } from "./cards.js";
import { post } from "./rpc.js";

const NEAR_PX = 80;

export function conversationView(link, { conversation = null, session = null }) {
  const messages = el("ol", { class: "messages", "aria-label": "Messages" });
  const live = el("div", { class: "live", "aria-live": "off", hidden: true });
  const title = el("h1", { text: session ?? "Chat" });
  const about = el("p", { class: "about" });
  const stop = el("button", { type: "button", class: "stop", hidden: true, onclick: () => link.call("sessions.stop", { sessionKey: here.sessionKey }) }, "Stop");
  const problem = el("p", { class: "problem", role: "alert", hidden: true });
  const scroller = el("div", { class: "scroller", role: "log", "aria-label": "Conversation", tabindex: "0" }, messages, problem, live);
  const composer = session ? null : composerOf();
  const element = el("section", { class: "conversation" },
    el("div", { class: "head" }, title, about, stop), scroller, composer?.element);
  const known = new Map();  // of own chats: the element of each message, by its id
  const cards = new Map();  // the message that shows a request, by the request's id
  let here = null;
  const early = [];  // what was told before it is known whose chat this is
  let nowOpen;
  const isOpen = new Promise((resolve) => { nowOpen = resolve; });
  let last = "";

  // A person who reads further up is left there; who is at the end stays at the end.
  function grown(change) {
    const isNear = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < NEAR_PX;
    change();
    if (isNear) scroller.scrollTop = scroller.scrollHeight;
  }

  async function connected() {
    problem.hidden = true;
    try {
      if (session) await openSession();
      else await openChat();
    } catch (error) {
      problem.hidden = false;
      problem.textContent = error.message;
      if (composer && error.code === "FORBIDDEN") composer.element.hidden = true;
    }
  }

  async function openChat() {
    here = await link.call("web.open", { conversation, after: last });
    link.own = here.sessionKey.replace(/[^:]*$/, "");
    title.textContent = `Chat with ${here.agent}`;
    early.splice(0).forEach(happened);
    running(here.state !== "idle");
    nowOpen();
    composer.opened();
  }

  async function openSession() {
    const found = await link.call("sessions.subscribe", { sessionKey: session });
    here = { sessionKey: found.sessionKey };
    const [history, facts] = await Promise.all([
      link.call("chat.history", { sessionKey: session, limit: 200 }).catch(() => ({ items: [] })),
      link.call("sessions.status", { sessionKey: session }),
    ]);
    title.textContent = `${facts.channel} · ${facts.agent}`;
    about.textContent = `last message ${ago(facts.lastMessageMs)}${facts.waiting ? ` · ${facts.waiting} waiting` : ""}`;
    running(facts.state !== "idle");
    grown(() => fill(messages, history.items.map(item)));
  }

  function running(isRunning) {
    stop.hidden = !isRunning;
    if (!isRunning) { live.hidden = true; fill(live); }
  }

  // -- what has happened ------------------------------------------------------------------------

  function told({ event, payload }) {
    if (event === "web.event") return !session && payload.conversation === conversation && happened(payload);
    if (!here || payload?.sessionKey !== here.sessionKey) return;
    if (event === "session.live") return grown(() => showLive(payload));
    if (event === "session.outcome") {
      running(false);
      if (session) openSession();
      else if (payload.usage) ended(payload.usage);
    }
  }

  function happened(event) {
    if (!here) { early.push(event); return; }
    if (last && !isLater(event.id, last)) return;  // a second tab, a second connection
    last = event.id;
    grown(() => {
      if (event.kind === "message") add(event);
      else if (event.kind === "deletion") known.get(event.message)?.remove();
      else if (event.kind === "reaction") react(event);
    });
  }

  function add(event) {
    const isOwn = event.from === here?.person;
    if (event.card && !event.card.choices.length && cards.has(event.card.id)) {
      const closed = cards.get(event.card.id);
      closed.querySelector(".choices")?.remove();
      fill(closed.querySelector(".text"), rendered(event.html));
      return;
    }
    const body = event.html || event.text ? written(event) : null;
    const made = el("li", { class: ["message", isOwn ? "own" : "agent", event.isError && "error"].filter(Boolean).join(" "), "data-id": event.id },
      el("div", { class: "by" },
        el("span", { class: "who", text: isOwn ? "You" : here?.agent ?? "agent" }),
        event.origin ? el("span", { class: "origin", text: event.origin }) : null,
        el("time", { datetime: new Date(event.at).toISOString(), text: moment(event.at) })),
      event.replyTo ? quote(event.replyTo) : null,
      body,
      (event.files ?? []).map((file) => download(event.sid, file)),
      event.card?.choices.length ? card(event.card, (verdict, words) => answer(event.card.id, verdict, words)) : null,
      el("span", { class: "reactions" }));
    if (event.card) cards.set(event.card.id, made);
    known.set(event.id, made);
    if (!isOwn) { fill(live); live.hidden = true; }
    messages.append(made);
  }

  function quote(id) {
    const quoted = known.get(id)?.querySelector(".text")?.textContent.slice(0, 120);
    return quoted ? el("blockquote", { class: "quote", text: quoted }) : null;
  }

  function react(event) {
    const message = known.get(event.message)?.querySelector(".reactions");
    if (message) message.textContent = event.emoji;
  }

  function ended(usage) {
    const words = [
      usage.duration_s && `${Math.round(usage.duration_s)} s`,
      usage.output_tokens && `${count(usage.output_tokens)} tokens`,
      usage.cost_usd && `$${usage.cost_usd.toFixed(2)}`,
    ].filter(Boolean).join(" · ");
    if (words) messages.append(el("li", { class: "ended", text: words }));
  }

  function download(sid, file) {
    const link = el("a", { class: "file", href: "#", onclick: async (event) => {
      event.preventDefault();
      const answer = await fetch(`/page/files/${sid}/${file.blob}?size=${file.size}`, { headers: { "X-RemoteClaw-Page": "1" } });
      if (!answer.ok) { link.append(" (not kept any more)"); return; }
      const url = URL.createObjectURL(new Blob([await answer.blob()], { type: "application/octet-stream" }));
      el("a", { href: url, download: file.name }).click();
      setTimeout(() => URL.revokeObjectURL(url), 60_000);
    } }, `${file.name} · ${size(file.size)}`);
    return link;
  }

  // -- what is going on -------------------------------------------------------------------------

  function showLive(now) {
    running(true);
    live.hidden = false;
    const tools = (now.activity ?? []).map((tool) => el("li", { class: tool.seconds === null ? "runs" : "over" },
      el("span", { class: "tool", text: tool.tool }), " ", el("code", { text: tool.argument ?? "" }),
      tool.seconds === null ? null : el("span", { class: "seconds", text: ` ${Math.round(tool.seconds)} s` })));
    const plan = (now.plan ?? []).map((step) => el("li", { class: step.state, text: step.text }));
    fill(live,
      tools.length ? el("ul", { class: "tools" }, tools) : null,
      plan.length ? el("ol", { class: "plan" }, plan) : null,
      now.html || now.text ? written(now) : el("p", { class: "thinking", text: "…" }),
      el("p", { class: "since", text: `${Math.max(0, Math.round((now.at - now.since_ms) / 1000)) || 0} s` }));
  }

  // -- what the person does ---------------------------------------------------------------------

  function answer(request, verdict, words = "") {
    return link.call("web.send", { conversation, messageId: id(), answer: { request, verdict, words } });
  }

  function composerOf() {
    const text = el("textarea", { rows: "1", placeholder: "Write to the agent", "aria-label": "Message",
      onkeydown: (event) => {
        if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); send(); }
      },
      oninput: () => { unsent = null; grow(); },  // other words are another message
      onpaste: (event) => { if (event.clipboardData.files.length) { event.preventDefault(); attach(event.clipboardData.files); } } });
    const picker = el("input", { type: "file", multiple: true, hidden: true, onchange: () => { attach(picker.files); picker.value = ""; } });
    const files = el("ul", { class: "attached" });
    const problem = el("p", { class: "problem", role: "alert", hidden: true });
    const form = el("form", { class: "composer", onsubmit: (event) => { event.preventDefault(); send(); } },
      problem, files,
      el("div", { class: "row" },
        el("button", { type: "button", "aria-label": "Attach files", onclick: () => picker.click() }, "+"),
        picker, text, el("button", { type: "submit" }, "Send")));
    let attached = [];
    let unsent = null;  // the id of what is being sent, so that it is sent once however often

    form.addEventListener("dragover", (event) => event.preventDefault());
    form.addEventListener("drop", (event) => { event.preventDefault(); attach(event.dataTransfer.files); });

    function grow() {
      text.rows = Math.min(12, text.value.split("\n").length);
    }

    function complain(words) {
      problem.hidden = !words;
      problem.textContent = words;
    }

    async function attach(chosen) {
      chosen = [...chosen];  // what was picked is gone with the picker's value
      complain("");
      await isOpen;
      for (const file of chosen) {
        const answer = await post(`/page/files?session=${encodeURIComponent(here.sessionKey)}&name=${encodeURIComponent(file.name)}`, file).catch(() => null);
        if (!answer?.ok) {
          complain((await answer?.json().catch(() => null))?.error?.message ?? `${file.name} was not sent: RemoteClaw is away.`);
          continue;
        }
        const stored = await answer.json();
        attached.push(stored);
        files.append(el("li", {}, `${stored.name} · ${size(stored.size)} `,
          el("button", { type: "button", "aria-label": `Remove ${stored.name}`, onclick: (event) => {
            attached = attached.filter((each) => each !== stored);
            event.currentTarget.parentElement.remove();
          } }, "×")));
      }
    }

    async function send() {
      if ((!text.value.trim() && !attached.length) || form.hasAttribute("aria-busy")) return;
      form.setAttribute("aria-busy", "true");
      await isOpen;  // who is quick writes before it is
      unsent ??= id();
      try {
        await link.call("web.send", { conversation, messageId: unsent, text: text.value, files: attached });
        unsent = null;
        text.value = "";
        attached = [];
        fill(files);
        complain("");
        grow();
      } catch (error) {
        if (!error.retryable) unsent = null;
        complain(error.retryable ? `Perhaps not sent: ${error.message} Send it again; it counts once.` : error.message);
      } finally {
        form.removeAttribute("aria-busy");
        text.focus();
      }
    }

    return { element: form, opened: () => text.focus({ preventScroll: true }) };
  }

  return { element, connected, told, close() { if (session) link.call("sessions.unsubscribe", { sessionKey: session }).catch(() => {}); } };
}

/** Return an item of a session's record. */
function item(recorded) {
  if (recorded.role === "tool") {
    return el("li", { class: "tool-use" }, el("details", {},
      el("summary", {}, el("span", { class: "tool", text: recorded.tool ?? "tool" }), " ", el("time", { text: moment(recorded.at) })),
      el("pre", { text: recorded.text })));
  }
  const isAgent = recorded.role === "assistant";
  return el("li", { class: `message ${isAgent ? "agent" : "own"}` },
    el("div", { class: "by" },
      el("span", { class: "who", text: isAgent ? "agent" : recorded.from ?? recorded.role }),
      el("time", { text: moment(recorded.at) })),
    written(recorded));
}

/** Return a text as the gateway has made HTML of it, or as it is: of a very long one it makes none. */
function written({ html, text }) {
  return html ? rendered(html) : el("div", { class: "text plain", text });
}

/** Whether an event is later than another: two of one millisecond have one number, too. */
function isLater(one, other) {
  const [at, number] = one.split("-").map(Number);
  const [thenAt, thenNumber] = other.split("-").map(Number);
  return at > thenAt || (at === thenAt && number > thenNumber);
}

function id() {
  return crypto.getRandomValues(new Uint32Array(4)).reduce((text, part) => text + part.toString(16).padStart(8, "0"), "");
}
