// The form for messages with files.

import { completion } from "./completion.js";
import { el, fill, newId, problemLine, setMessage, size } from "./dom.js";
import { image, pictureOf } from "./files.js";
import { icon, iconButton } from "./icons.js";
import { post } from "./rpc.js";

const RETRY_MS = 5000;
/** Stop takes the place of Send: for this time, a second press of Send doesn't stop the turn. */
const TWICE_MS = 600;
const isTouched = matchMedia("(pointer: coarse)").matches;

/**
 * Return a composer. `send({ messageId, text, files, replyTo })` resolves once the message is
 * accepted, and `session()` resolves to the key of the session to which files are uploaded. Unsent
 * text is kept in the session storage under the key `draft`. `stop()` stops the running turn, and
 * `suggest(sign, letters)` completes words as `completion` describes.
 */
export function composer({ send, session, draft, stop, suggest }) {
  const text = el("textarea", { rows: "1", dir: "auto", placeholder: "Write to the agent", "aria-label": "Message",
    onkeydown: (event) => {
      if (completing.onKey(event)) return;
      if (event.key === "Escape") setReply(null);
      if (event.key !== "Enter" || event.shiftKey || event.isComposing || isTouched) return;
      event.preventDefault();  // on touch screens, Enter begins a new line
      submit();
    },
    oninput: () => { saveDraft(); completing.update(); },
    onpaste: (event) => { if (event.clipboardData.files.length) { event.preventDefault(); attach(event.clipboardData.files); } } });
  const completing = completion(text, suggest, saveDraft);
  const picker = el("input", { type: "file", multiple: true, hidden: true, onchange: picked });
  const camera = isTouched ? el("input", { type: "file", accept: "image/*", capture: "environment", hidden: true, onchange: picked }) : null;
  const quoted = el("div", { class: "quoted", hidden: true });
  const waiting = el("ul", { class: "unsent", "aria-label": "Not sent yet", hidden: true });
  const files = el("ul", { class: "attached", "aria-label": "Attached files" });
  const problem = problemLine();
  const sending = el("button", { type: "submit", class: "send icon-button", "aria-label": "Send", title: "Send" }, icon("send"));
  const stopping = iconButton("stop", "Stop", () => { if (performance.now() - sentAt > TWICE_MS) stop(); }, { class: "stop", hidden: true });
  const form = el("form", { class: "composer", onsubmit: (event) => { event.preventDefault(); submit(); } },
    problem, waiting, completing.element,
    el("div", { class: "box", onclick: ({ target, currentTarget }) => { if (target === currentTarget) text.focus(); } },
      quoted, files, text,
      el("div", { class: "strip" },
        iconButton("attach", "Attach files", () => picker.click()),
        camera && iconButton("camera", "Take a picture", () => camera.click()),
        picker, camera, sending, stopping)));
  let sentAt = -Infinity;
  let isRunning = false;  // whether a turn runs, which can be stopped
  let attached = [];
  let replyTo = null;
  let outbox = [];  // the unsent messages, oldest first; the id of each prevents duplicates
  let isSending = false;
  let isClosed = false;  // another composer may have taken over the draft

  form.addEventListener("dragover", (event) => { event.preventDefault(); form.classList.add("drops"); });
  form.addEventListener("dragleave", () => form.classList.remove("drops"));
  form.addEventListener("drop", (event) => { event.preventDefault(); form.classList.remove("drops"); attach(event.dataTransfer.files); });

  const saved = JSON.parse(sessionStorage.getItem(draft) ?? "{}");
  text.value = saved.text ?? "";
  outbox = saved.outbox ?? [];
  resize();

  function saveDraft() {
    if (isClosed) return;
    resize();
    if (text.value || outbox.length) sessionStorage.setItem(draft, JSON.stringify({ text: text.value, outbox }));
    else sessionStorage.removeItem(draft);
  }

  function resize() {
    text.rows = Math.min(12, text.value.split("\n").length);
    showButton();
  }

  /** Show Stop in place of Send while a turn runs and nothing is written. */
  function showButton() {
    const isStop = isRunning && !text.value.trim() && !attached.length, hadFocus = document.activeElement === stopping;
    sending.hidden = isStop;
    stopping.hidden = !isStop;
    if (!isStop && hadFocus) focus();
  }

  function setRunning(isNow) {
    isRunning = isNow;
    showButton();
  }

  function picked({ currentTarget }) {
    attach(currentTarget.files);
    currentTarget.value = "";
  }

  /** Make the next message a reply to a message; null removes the reply. */
  function setReply(message) {
    replyTo = message?.id ?? null;
    quoted.hidden = !message;
    fill(quoted, message && [
      el("blockquote", { class: "quote", text: message.text }),
      iconButton("close", "Don't reply to it", () => { setReply(null); text.focus(); })]);
    if (message) text.focus();
  }

  async function attach(chosen) {
    chosen = [...chosen];  // clearing the picker's value empties its list
    setMessage(problem, "");
    const sessionKey = await session();
    for (const file of chosen) {
      const answer = await post(`/page/files?session=${encodeURIComponent(sessionKey)}&name=${encodeURIComponent(file.name)}`, file).catch(() => null);
      if (!answer?.ok) {
        setMessage(problem, (await answer?.json().catch(() => null))?.error?.message ?? `${file.name} was not sent: RemoteClaw is away.`);
        continue;
      }
      const stored = await answer.json();
      setAttached([...attached, { ...stored, picture: await pictureOf(file) }]);
    }
  }

  /** Set the uploaded files of the next message. */
  function setAttached(stored) {
    attached = stored;
    fill(files, stored.map((file) => el("li", {},
      file.picture ? image(file.picture) : icon("file"), el("span", { class: "name", text: file.name }), el("span", { class: "about", text: size(file.size) }),
      iconButton("close", `Remove ${file.name}`, () => setAttached(attached.filter((each) => each !== file))))));
    showButton();
  }

  function submit() {
    if (!text.value.trim() && !attached.length) return;
    outbox.push({ messageId: newId(), text: text.value, files: attached.map(({ picture, ...file }) => file), replyTo });
    text.value = "";
    sentAt = performance.now();
    setAttached([]);
    setReply(null);
    saveDraft();
    flush();
    focus();
  }

  /** Send the unsent messages, in order. */
  async function flush() {
    if (isSending || isClosed || !outbox.length) return;
    isSending = true;
    await session();  // a message may be written before the chat is open
    try {
      while (outbox.length) {
        await send(outbox[0]);
        outbox.shift();
        setMessage(problem, "");
      }
    } catch (error) {
      setMessage(problem, error.retryable ? `Perhaps not sent: ${error.message} It will be sent again automatically, and counts once.` : error.message);
      if (error.retryable) setTimeout(flush, RETRY_MS);
      else takeBack();
    }
    isSending = false;
    waiting.hidden = !outbox.length;
    fill(waiting, outbox.map((message) => el("li", { text: message.text.slice(0, 200) || message.files[0].name })));
    saveDraft();
  }

  /** Move refused messages back into the text field. */
  function takeBack() {
    const messages = outbox.splice(0);
    text.value = [...messages.map((message) => message.text), text.value].filter(Boolean).join("\n\n");
    setAttached([...messages.flatMap((message) => message.files), ...attached]);
  }

  /** Focus the text field, except on touch screens, where the keyboard would cover half of the screen. */
  function focus() {
    if (!isTouched) text.focus({ preventScroll: true });
  }

  function close() {
    isClosed = true;
  }

  /** Put a text into the field, for the person to change and send. */
  function suggestText(value) {
    text.value = value;
    saveDraft();
    text.focus();
  }

  return { element: form, setReply, setRunning, suggestText, focus, flush, close };
}
