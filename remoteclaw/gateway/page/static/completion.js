// Completes the word at the caret of a text field: a listbox of which the field stays focused.

import { el, fill, liveRegion } from "./dom.js";

/** The word that can be completed: a command at the beginning of the text, or a file anywhere. */
const WORD = /(?:^(\/)|(?:^|\s)(@))(\S*)$/;
/** How long a person may pause within a word before files are looked for. */
const PAUSE_MS = 80;
let lists = 0;

/**
 * Complete words in the field `text`. `find(sign, letters)` resolves to options with `value`, what
 * replaces the word, and `about`; the sign is `/` or `@`. `onChosen()` is called after a change.
 */
export function completion(text, find, onChosen) {
  const element = el("ul", { class: "completion", id: `completion-${lists += 1}`, role: "listbox", "aria-label": "Suggestions", hidden: true });
  let options = [], at = 0, asked = 0, timer = null;
  for (const [name, value] of [["aria-autocomplete", "list"], ["aria-controls", element.id]]) text.setAttribute(name, value);

  const word = () => WORD.exec(text.value.slice(0, text.selectionStart));

  async function update() {
    clearTimeout(timer);
    const found = text.selectionStart === text.selectionEnd ? word() : null;
    if (!found) return close();
    const number = asked += 1, sign = found[1] ?? found[2];
    if (sign === "@") await new Promise((resolve) => { timer = setTimeout(resolve, PAUSE_MS); });
    const fitting = await find(sign, found[3]).catch(() => []);
    if (number === asked && word()?.[0] === found[0]) show(fitting);
  }

  function show(fitting) {
    options = fitting;
    element.hidden = !options.length;
    fill(element, options.map(({ value, about }, index) => el("li", {
      id: `${element.id}-${index}`, role: "option", onmousedown: (event) => event.preventDefault(), onclick: () => choose(index),
    }, el("span", { class: "value", text: value }), about ? el("span", { class: "about", text: about }) : null)));
    if (!options.length) return close();
    liveRegion.textContent = `${options.length} ${options.length === 1 ? "suggestion" : "suggestions"}`;
    mark(0);
  }

  function mark(index) {
    at = (index + options.length) % options.length;
    [...element.children].forEach((each, number) => each.setAttribute("aria-selected", String(number === at)));
    element.children[at].scrollIntoView({ block: "nearest" });
    text.setAttribute("aria-activedescendant", element.children[at].id);
  }

  function choose(index) {
    const found = word(), { value } = options[index];
    close();
    if (!found) return;
    const end = text.selectionStart, start = end - found[3].length - 1;
    text.setRangeText(`${value} `, start, end, "end");
    text.focus();
    onChosen();
  }

  function close() {
    asked += 1;
    options = [];
    element.hidden = true;
    text.removeAttribute("aria-activedescendant");
  }

  /** Handle a key; return whether it was for the list. */
  function onKey(event) {
    if (!options.length || event.isComposing) return false;
    const found = word();
    const isWhole = found && options[at].value === found[0].trimStart();
    if (event.key === "ArrowDown" || event.key === "ArrowUp") mark(at + (event.key === "ArrowDown" ? 1 : -1));
    else if (event.key === "Escape") close();
    else if ((event.key === "Enter" && !event.shiftKey && !isWhole) || (event.key === "Tab" && !event.shiftKey)) choose(at);
    else return false;
    event.preventDefault();
    return true;
  }

  text.addEventListener("blur", close);
  return { element, update, onKey };
}
