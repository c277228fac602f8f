// Where a person writes: words and files.

import { button, el, fill, id, problemLine, say, size } from "./dom.js";
import { post } from "./rpc.js";

const AGAIN_MS = 5000;
const isTouched = matchMedia("(pointer: coarse)").matches;

/**
 * Return a composer. `send({ messageId, text, files, replyTo })` resolves once the message was
 * taken, and `session()` once it is known to which session the files go. What is written is kept
 * in this tab as the draft of that name until it is sent.
 */
export function composer({ send, session, draft }) {
  const text = el("textarea", { rows: "1", dir: "auto", placeholder: "Write to the agent", "aria-label": "Message",
    onkeydown: (event) => {
      if (event.key === "Escape") reply(null);
      if (event.key !== "Enter" || event.shiftKey || event.isComposing || isTouched) return;
      event.preventDefault();  // keyboards on a screen have no Shift for a new line
      submit();
    },
    oninput: keep,
    onpaste: (event) => { if (event.clipboardData.files.length) { event.preventDefault(); attach(event.clipboardData.files); } } });
  const picker = el("input", { type: "file", multiple: true, hidden: true, onchange: picked });
  const camera = isTouched ? el("input", { type: "file", accept: "image/*", capture: "environment", hidden: true, onchange: picked }) : null;
  const quoted = el("div", { class: "quoted", hidden: true });
  const waiting = el("ul", { class: "unsent", "aria-label": "Not sent yet", hidden: true });
  const files = el("ul", { class: "attached" });
  const problem = problemLine();
  const form = el("form", { class: "composer", onsubmit: (event) => { event.preventDefault(); submit(); } },
    problem, waiting, quoted, files,
    el("div", { class: "row" },
      button("+", () => picker.click(), { "aria-label": "Attach files" }),
      camera && button("◉", () => camera.click(), { "aria-label": "Take a picture" }),
      picker, camera, text, el("button", { type: "submit" }, "Send")));
  let attached = [];
  let replyTo = null;
  let outbox = [];  // what is being sent, oldest first; each has an id, so that it counts once
  let isSending = false;
  let isClosed = false;  // the next composer of the draft goes on

  form.addEventListener("dragover", (event) => event.preventDefault());
  form.addEventListener("drop", (event) => { event.preventDefault(); attach(event.dataTransfer.files); });

  const kept = JSON.parse(sessionStorage.getItem(draft) ?? "{}");
  text.value = kept.text ?? "";
  outbox = kept.outbox ?? [];
  grow();

  function keep() {
    if (isClosed) return;
    grow();
    if (text.value || outbox.length) sessionStorage.setItem(draft, JSON.stringify({ text: text.value, outbox }));
    else sessionStorage.removeItem(draft);
  }

  function grow() {
    text.rows = Math.min(12, text.value.split("\n").length);
  }

  function picked({ currentTarget }) {
    attach(currentTarget.files);
    currentTarget.value = "";
  }

  /** Answer a message of the conversation with what is written next; null: none. */
  function reply(message) {
    replyTo = message?.id ?? null;
    quoted.hidden = !message;
    fill(quoted, message && [
      el("blockquote", { class: "quote", text: message.text }),
      button("×", () => { reply(null); text.focus(); }, { class: "quiet", "aria-label": "Don't reply to it" })]);
    if (message) text.focus();
  }

  async function attach(chosen) {
    chosen = [...chosen];  // what was picked is gone with the picker's value
    say(problem, "");
    const sessionKey = await session();
    for (const file of chosen) {
      const answer = await post(`/page/files?session=${encodeURIComponent(sessionKey)}&name=${encodeURIComponent(file.name)}`, file).catch(() => null);
      if (!answer?.ok) {
        say(problem, (await answer?.json().catch(() => null))?.error?.message ?? `${file.name} was not sent: RemoteClaw is away.`);
        continue;
      }
      const stored = await answer.json();
      carry([...attached, stored]);
    }
  }

  /** Have these files go with what is written. */
  function carry(stored) {
    attached = stored;
    fill(files, stored.map((file) => el("li", {}, `${file.name} · ${size(file.size)} `,
      button("×", () => carry(attached.filter((each) => each !== file)), { "aria-label": `Remove ${file.name}` }))));
  }

  function submit() {
    if (!text.value.trim() && !attached.length) return;
    outbox.push({ messageId: id(), text: text.value, files: attached, replyTo });
    text.value = "";
    carry([]);
    reply(null);
    keep();
    flush();
    focus();
  }

  /** Send what is not sent yet, in order. */
  async function flush() {
    if (isSending || isClosed || !outbox.length) return;
    isSending = true;
    await session();  // who is quick writes before it is
    try {
      while (outbox.length) {
        await send(outbox[0]);
        outbox.shift();
        say(problem, "");
      }
    } catch (error) {
      say(problem, error.retryable ? `Perhaps not sent: ${error.message} It is sent again by itself, and counts once.` : error.message);
      if (error.retryable) setTimeout(flush, AGAIN_MS);
      else takeBack();
    }
    isSending = false;
    waiting.hidden = !outbox.length;
    fill(waiting, outbox.map((message) => el("li", { text: message.text.slice(0, 200) || message.files[0].name })));
    keep();
  }

  /** Have what was refused be written again. */
  function takeBack() {
    const messages = outbox.splice(0);
    text.value = [...messages.map((message) => message.text), text.value].filter(Boolean).join("\n\n");
    carry([...messages.flatMap((message) => message.files), ...attached]);
  }

  /** Have the keyboard here, but for the one that covers half of a screen. */
  function focus() {
    if (!isTouched) text.focus({ preventScroll: true });
  }

  function close() {
    isClosed = true;
  }

  return { element: form, reply, focus, again: flush, close };
}
