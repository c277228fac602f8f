// The page of guests: shows the screen of one terminal to whoever has a link. It sends nothing but the request for it.

import { el, fill, moment } from "./dom.js";
import { icon, stateMark } from "./icons.js";
import { shapeOf } from "./terminal_status.js";
import { terminalView } from "./terminal_view.js";

const RETRY_MS = 2000;
/** How long the gateway may send nothing: it sends a comment every 15 seconds. */
const MAX_SILENCE_MS = 40_000;
const WORDS = { busy: "Works", waiting: "Waits for an answer", idle: "Waits for a message", unknown: "Open" };
/** The statuses after which the link shows nothing any more. */
const OVER = [400, 401, 403, 404, 410];

const mark = el("span", { class: "tty-mark" });
const status = el("p", { class: "tty-state", role: "status" });
const about = el("p", { class: "tty-people" });
const title = el("p", { class: "tty-title", dir: "auto" });
const view = terminalView({ field: el("span", { hidden: true }) });
let state = { state: "starting", activity: "unknown" };

function show(text = "") {
  fill(mark, stateMark(text ? "failed" : shapeOf({ ...state, reason: "" }), ""));
  status.textContent = text || (state.state === "starting" ? "Starting" : WORDS[state.activity] ?? "Open");
}

/** Show why the terminal is not shown any more, in place of it. */
function end(sentence) {
  document.body.classList.add("over");
  fill(document.body, el("main", { class: "card" }, el("h1", { text: "Nothing to watch here" }), el("p", { text: sentence })));
}

/** Watch until the link is over. */
async function watch() {
  for (;;) {
    const sentence = await read().catch(() => "");
    if (sentence) return end(sentence);
    show("Connection lost: trying again. This is the last screen.");
    await new Promise((done) => { setTimeout(done, RETRY_MS); });
  }
}

/** Read the events of the terminal, until the connection is lost; return the sentence if the link is over. */
async function read() {
  const silence = new AbortController();
  let timer = 0;
  const heard = () => { clearTimeout(timer); timer = setTimeout(() => silence.abort(), MAX_SILENCE_MS); };
  heard();
  const answer = await fetch("/watch/screen", { headers: { Authorization: `Bearer ${location.hash.slice(1)}` }, signal: silence.signal });
  if (!answer.ok) {
    clearTimeout(timer);
    const { error } = await answer.json();
    if (OVER.includes(answer.status)) return error.message;
    show(error.message);
    await new Promise((done) => { setTimeout(done, RETRY_MS); });
    return "";
  }
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return "";
      heard();
      const events = (rest + value).split("\n\n");
      rest = events.pop();
      for (const event of events) take(event);
    }
  } finally {
    clearTimeout(timer);
    reader.cancel().catch(() => {});
  }
}

function take(text) {
  const fields = new Map(text.split("\n").map((line) => { const at = line.indexOf(": "); return [line.slice(0, at), line.slice(at + 2)]; }));
  if (!fields.has("data")) return;
  const data = JSON.parse(fields.get("data"));
  switch (fields.get("event")) {
    case "about":
      state = { state: data.state, activity: data.activity };
      about.textContent = `${data.by} shares this terminal until ${moment(data.untilMs)}; you can only watch`;
      document.title = `${data.by}'s terminal · RemoteClaw`;
      return show();
    case "state":
      state = data;
      return show();
    case "screen":
      view.apply(data);
      if (title.textContent !== data.title) title.textContent = data.title;
  }
}

document.body.append(
  el("div", { class: "tty-bar", role: "banner" }, el("span", { class: "brand" }, icon("mark"), el("span", { class: "unseen", text: "RemoteClaw" })), mark, status, about, title),
  el("main", {}, el("h1", { class: "unseen", text: "A shared terminal" }), view.element));
addEventListener("hashchange", () => location.reload());
view.prepare();
show();
watch();
