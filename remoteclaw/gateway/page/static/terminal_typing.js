// The keyboard input of a terminal: sends keys, composed text and pastes in order.

import { button, el } from "./dom.js";
import { iconButton } from "./icons.js";
import { keyOf, keyOfBar, keysOfText } from "./terminal_keys.js";

/** How many keys are sent in one call, and the longest paste, in characters. */
const MAX_KEYS = 256, MAX_PASTE_CHARS = 100_000;
/** The buttons of the key bar: text, key and label. */
const BAR = [["Esc", "esc", "Escape"], ["Tab", "tab", "Tab"], ["Ctrl"], ["←", "left", "Left"], ["↑", "up", "Up"], ["↓", "down", "Down"], ["→", "right", "Right"],
  ["|", "|", "Bar"], ["/", "/", "Slash"], ["⌫", "backspace", "Backspace"], ["⏎", "enter", "Enter"]];

/**
 * Return the input field and the key bar. `send(keys)` types them, `onRefused(error)`
 * receives a refusal, `onFiles(files)` receives pasted files, `hasSelection()` returns whether Ctrl-C copies,
 * `leave()` moves the focus away, `search()` opens the search, and `onInput()` is called before each input.
 */
export function terminalKeyboard({ send, onRefused, onFiles, hasSelection, leave, search, onInput }) {
  const field = el("textarea", { class: "tty-keys", rows: "1", "aria-label": "Type into the terminal", autocomplete: "off", autocapitalize: "off",
    autocorrect: "off", spellcheck: "false", "data-gramm": "false", disabled: true });
  const controlKey = button("Ctrl", () => hold(!isHeld()), { "aria-pressed": "false", "aria-label": "Control, for the next key" });
  const bar = el("div", { class: "tty-keybar", role: "toolbar", "aria-label": "Keys" }, BAR.map(([text, name, label]) => name
    ? button(text, () => { enqueue(keyOfBar(name, isHeld())); hold(false); }, { "aria-label": label })
    : controlKey), iconButton("copy", "Paste", pasteClipboard));
  let queue = [];  // the unsent input, as items of `terminals.type`
  let isSending = false, isScheduled = false;

  const isHeld = () => controlKey.ariaPressed === "true";
  const hold = (isOn) => { controlKey.ariaPressed = String(isOn); };

  function enqueue(input) {
    if (field.disabled) return;
    onInput();
    queue.push(input);
    if (isSending || isScheduled) return;
    isScheduled = true;
    requestAnimationFrame(flush);  // all input of one animation frame is sent in one call
  }

  /** Send the queue, one call at a time, because concurrent calls could be reordered. */
  async function flush() {
    isScheduled = false;
    if (isSending) return;
    isSending = true;
    try {
      while (queue.length) {
        await send(queue.splice(0, itemsAhead()));
      }
    } catch (error) {
      queue = [];  // later input must not be typed without the refused input, nor that twice
      onRefused(error);
    } finally {
      isSending = false;
    }
  }

  /** Return how many items the next call has: a paste is large, and may be refused, so it is sent alone. */
  function itemsAhead() {
    const firstPaste = queue.findIndex((each) => each.startsWith("p:"));
    return Math.min(firstPaste < 0 ? queue.length : firstPaste || 1, MAX_KEYS);
  }

  function paste(text) {
    if (text.length > MAX_PASTE_CHARS) return onRefused(new Error("A paste may have at most 100,000 characters."));
    if (text) enqueue(`p:${text}`);
  }

  /** Paste what the clipboard has: a picture or a text. */
  async function pasteClipboard() {
    try {
      for (const item of await navigator.clipboard.read()) {
        const kind = item.types.find((type) => type.startsWith("image/"));
        if (item.types.includes("text/plain")) paste(await (await item.getType("text/plain")).text());
        else if (kind) onFiles([new File([await item.getType(kind)], `picture.${kind.split("/")[1]}`, { type: kind })]);
      }
    } catch {  // pages have no clipboard over plain HTTP, and people may refuse
      onRefused(new Error("Your browser doesn't let this page read the clipboard: hold the field at the bottom, and paste there."));
    }
  }

  /** Send the text of the field; several lines are sent as one paste. */
  function sendText(inputType = "") {
    const text = field.value;
    field.value = "";
    if (!text) return;
    if (/[\r\n]/.test(text) || inputType === "insertFromDrop" || inputType === "insertFromPaste") return paste(text);
    keysOfText(text, isHeld()).forEach(enqueue);
    hold(false);
  }

  field.addEventListener("keydown", (event) => {
    const key = keyOf(event, { hasSelection: hasSelection() });
    if (!key) return;
    event.preventDefault();
    event.stopPropagation();  // Escape must not close the drawer
    if (key === "leave") leave();
    else if (key === "search") search();
    else enqueue(key);
  });
  field.addEventListener("beforeinput", (event) => {  // on-screen keyboards send no usable keydown
    const key = { deleteContentBackward: "k:backspace", insertLineBreak: "k:enter", insertParagraph: "k:enter" }[event.inputType];
    if (!key || event.isComposing) return;
    event.preventDefault();
    enqueue(key);
  });
  field.addEventListener("compositionstart", () => field.classList.add("composing"));
  field.addEventListener("compositionend", () => { field.classList.remove("composing"); sendText(); });
  field.addEventListener("input", (event) => { if (!event.isComposing) sendText(event.inputType); });
  field.addEventListener("paste", (event) => {
    event.preventDefault();
    paste(event.clipboardData.getData("text/plain"));
  });
  bar.addEventListener("pointerdown", (event) => event.preventDefault());  // keeps the focus, and with it the on-screen keyboard

  /** Enable or disable the keyboard. */
  function enable(isOn) {
    field.disabled = !isOn;
    bar.hidden = !isOn;
    if (isOn) return;
    queue = [];
    field.value = "";
    hold(false);
  }

  enable(false);
  return { field, bar, enable };
}
