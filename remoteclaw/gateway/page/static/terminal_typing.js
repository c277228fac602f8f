// The keyboard of a terminal, for who has it: keys, composed text and pastes, in their order.

import { button, el } from "./dom.js";
import { keyOf, keyOfBar, keysOfText } from "./terminal_keys.js";

/** How many keys go in one call, and how much is pasted at once. */
const MAX_KEYS = 256, MAX_PASTED = 100_000;
const BAR = [["Esc", "esc", "Escape"], ["Tab", "tab", "Tab"], ["Ctrl"], ["←", "left", "Left"], ["↑", "up", "Up"], ["↓", "down", "Down"], ["→", "right", "Right"],
  ["⌫", "backspace", "Backspace"], ["⏎", "enter", "Enter"]];

/**
 * Return the field that takes the keyboard, and the key bar. `send(method, params)` makes a call,
 * `refused(error)` is told what was not taken, `hasSelection()` whether Ctrl-C copies, `leave()`
 * has the focus somewhere else, and `typed()` is called before anything is sent.
 */
export function typing({ send, refused, hasSelection, leave, typed }) {
  const field = el("textarea", { class: "tty-keys", rows: "1", "aria-label": "Type into the terminal", autocomplete: "off", autocapitalize: "off",
    autocorrect: "off", spellcheck: "false", "data-gramm": "false", disabled: true });
  const sticky = button("Ctrl", () => hold(!isHeld()), { "aria-pressed": "false", "aria-label": "Control, for the next key" });
  const bar = el("div", { class: "tty-keybar", role: "toolbar", "aria-label": "Keys" }, BAR.map(([text, name, label]) => name
    ? button(text, () => { put(keyOfBar(name, isHeld())); hold(false); }, { "aria-label": label })
    : sticky));
  let waiting = [];  // what is not sent yet: keys, and pastes as `{ paste }`
  let isSending = false, isAsked = false;

  const isHeld = () => sticky.ariaPressed === "true";
  const hold = (isOn) => { sticky.ariaPressed = String(isOn); };

  function put(what) {
    if (field.disabled) return;
    typed();
    waiting.push(what);
    if (isSending || isAsked) return;
    isAsked = true;
    requestAnimationFrame(flush);  // what comes in one frame goes in one call
  }

  /** Send what waits, one call after the other: the order of two at once is nobody's promise. */
  async function flush() {
    isAsked = false;
    if (isSending) return;
    isSending = true;
    try {
      while (waiting.length) {
        if (waiting[0].paste !== undefined) await send("terminals.paste", { text: waiting.shift().paste });
        else await send("terminals.type", { keys: waiting.splice(0, keysAhead()) });
      }
    } catch (error) {
      waiting = [];  // nothing is typed twice, and nothing behind what is missing
      refused(error);
    } finally {
      isSending = false;
    }
  }

  function keysAhead() {
    const paste = waiting.findIndex((each) => each.paste !== undefined);
    return Math.min(paste < 0 ? waiting.length : paste, MAX_KEYS);
  }

  function paste(text) {
    if (text.length > MAX_PASTED) return refused(new Error("What is pasted may have 100,000 characters at most."));
    if (text) put({ paste: text });
  }

  /** Send what has been typed into the field as text; several lines are one paste. */
  function take(inputType = "") {
    const text = field.value;
    field.value = "";
    if (!text) return;
    if (/[\r\n]/.test(text) || inputType === "insertFromDrop" || inputType === "insertFromPaste") return paste(text);
    keysOfText(text, isHeld()).forEach(put);
    hold(false);
  }

  field.addEventListener("keydown", (event) => {
    const key = keyOf(event, { hasSelection: hasSelection() });
    if (!key) return;
    event.preventDefault();
    event.stopPropagation();  // Escape closes nothing of the page's
    if (key === "leave") leave();
    else put(key);
  });
  field.addEventListener("beforeinput", (event) => {  // keyboards on a screen have no keydown that says which
    const key = { deleteContentBackward: "k:backspace", insertLineBreak: "k:enter", insertParagraph: "k:enter" }[event.inputType];
    if (!key || event.isComposing) return;
    event.preventDefault();
    put(key);
  });
  field.addEventListener("compositionstart", () => field.classList.add("composing"));
  field.addEventListener("compositionend", () => { field.classList.remove("composing"); take(); });
  field.addEventListener("input", (event) => { if (!event.isComposing) take(event.inputType); });
  field.addEventListener("paste", (event) => {
    event.preventDefault();
    paste(event.clipboardData.getData("text/plain"));
  });
  bar.addEventListener("pointerdown", (event) => event.preventDefault());  // the keyboard stays as it is

  /** Take keys from now on, or none. */
  function enable(isOn) {
    field.disabled = !isOn;
    bar.hidden = !isOn;
    if (isOn) return;
    waiting = [];
    field.value = "";
    hold(false);
  }

  enable(false);
  return { field, bar, enable };
}
