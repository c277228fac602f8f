// Where a person writes: words and files.

import { el, fill, id, size } from "./dom.js";
import { post } from "./rpc.js";

/**
 * Return a composer. `send({ messageId, text, files })` resolves once the message was taken, and
 * `session()` once it is known to which session the files go.
 */
export function composer({ send, session }) {
  const text = el("textarea", { rows: "1", placeholder: "Write to the agent", "aria-label": "Message",
    onkeydown: (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); submit(); }
    },
    oninput: () => { unsent = null; grow(); },  // other words are another message
    onpaste: (event) => { if (event.clipboardData.files.length) { event.preventDefault(); attach(event.clipboardData.files); } } });
  const picker = el("input", { type: "file", multiple: true, hidden: true, onchange: () => { attach(picker.files); picker.value = ""; } });
  const files = el("ul", { class: "attached" });
  const problem = el("p", { class: "problem", role: "alert", hidden: true });
  const form = el("form", { class: "composer", onsubmit: (event) => { event.preventDefault(); submit(); } },
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
    const sessionKey = await session();
    for (const file of chosen) {
      const answer = await post(`/page/files?session=${encodeURIComponent(sessionKey)}&name=${encodeURIComponent(file.name)}`, file).catch(() => null);
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

  async function submit() {
    if ((!text.value.trim() && !attached.length) || form.hasAttribute("aria-busy")) return;
    form.setAttribute("aria-busy", "true");
    await session();  // who is quick writes before it is
    unsent ??= id();
    try {
      await send({ messageId: unsent, text: text.value, files: attached });
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

  return { element: form, focus: () => text.focus({ preventScroll: true }) };
}
