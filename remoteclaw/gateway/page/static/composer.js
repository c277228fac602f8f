// The form for messages with files.

import { button, el, fill, newId, problemLine, setMessage, size } from "./dom.js";
import { post } from "./rpc.js";

const RETRY_MS = 5000;
const isTouched = matchMedia("(pointer: coarse)").matches;

/**
 * Return a composer. `send({ messageId, text, files, replyTo })` resolves once the message is
 * accepted, and `session()` resolves to the key of the session to which files are uploaded. Unsent
 * text is kept in the session storage under the key `draft`.
 */
export function composer({ send, session, draft }) {
  const text = el("textarea", { rows: "1", dir: "auto", placeholder: "Write to the agent", "aria-label": "Message",
    onkeydown: (event) => {
      if (event.key === "Escape") setReply(null);
      if (event.key !== "Enter" || event.shiftKey || event.isComposing || isTouched) return;
      event.preventDefault();  // on touch screens, Enter begins a new line
      submit();
    },
    oninput: saveDraft,
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
  let outbox = [];  // the unsent messages, oldest first; the id of each prevents duplicates
  let isSending = false;
  let isClosed = false;  // another composer may have taken over the draft

  form.addEventListener("dragover", (event) => event.preventDefault());
  form.addEventListener("drop", (event) => { event.preventDefault(); attach(event.dataTransfer.files); });

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
      button("×", () => { setReply(null); text.focus(); }, { class: "quiet", "aria-label": "Don't reply to it" })]);
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
      setAttached([...attached, stored]);
    }
  }

  /** Set the uploaded files of the next message. */
  function setAttached(stored) {
    attached = stored;
    fill(files, stored.map((file) => el("li", {}, `${file.name} · ${size(file.size)} `,
      button("×", () => setAttached(attached.filter((each) => each !== file)), { "aria-label": `Remove ${file.name}` }))));
  }

  function submit() {
    if (!text.value.trim() && !attached.length) return;
    outbox.push({ messageId: newId(), text: text.value, files: attached, replyTo });
    text.value = "";
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

  return { element: form, setReply, suggestText, focus, flush, close };
}
