// The command palette: searches conversations, and runs commands.

import { openDialog } from "./dialog.js";
import { count, el, fill, newId } from "./dom.js";
import { icon } from "./icons.js";
import { addressOf, nameOf } from "./session_keys.js";

/** How long a person may pause while typing before conversations are searched, in milliseconds. */
const TYPING_MS = 150;
/** How many conversations and commands are offered. */
const MAX_FOUND = 8;
/** How many conversations are known before a search. */
const MAX_KNOWN = 50;

/**
 * Open the palette. `known` has the listed sessions and the agents, until all have arrived; `view` is the
 * shown view: it may have `commands()`, and then `suggest(text)`, which puts a text into the message.
 */
export function openPalette(link, { known, view, places }) {
  const field = el("input", { type: "text", role: "combobox", "aria-expanded": "true", "aria-controls": "palette-list", "aria-autocomplete": "list", "aria-label": "Search or run",
    placeholder: "Search conversations, or run a command", autocomplete: "off", spellcheck: "false", oninput: onInput, onkeydown: onKey });
  const list = el("div", { id: "palette-list", role: "listbox", "aria-label": "Results" });
  const note = el("p", { class: "about", role: "status" });
  const dialog = openDialog({ class: "palette", "aria-label": "Search or run" }, el("div", { class: "field" }, icon("search"), field), list, note);
  let options = [];  // the shown options, each with its element
  let at = 0, calls = 0, timer = null;
  let found = null;  // the result of the last search

  function onInput() {
    clearTimeout(timer);
    found = null;
    calls += 1;
    if (field.value.trim()) timer = setTimeout(search, TYPING_MS);
    show();
  }

  async function search() {
    const number = calls;
    const result = await link.call("sessions.search", { filter: field.value.trim(), limit: MAX_FOUND }).catch(() => null);
    if (number !== calls || !result) return;
    found = result;
    show();
  }

  async function refresh() {
    known = await link.call("sessions.search", { limit: MAX_KNOWN }).catch(() => known);
    show(at);
  }

  function show(selected = 0) {
    const query = field.value.trim().toLowerCase(), fits = ({ text }) => query.split(/\s+/).every((word) => text.toLowerCase().includes(word));
    const { sessions, agents } = known;
    const commands = (view?.commands?.() ?? []).map(([name, about]) => ({ icon: "terminal", text: `/${name}`, about, run: () => view.suggest(`/${name} `) }));
    const groups = [
      ["Conversations", found ? found.sessions.map(conversation) : sessions.map(conversation).filter(fits)],
      ["Go to", places.map(([address, name, sign]) => ({ icon: sign, text: name, run: () => { location.hash = address; } })).filter(fits)],
      ["New", link.scopes.includes("write") ? agents.map(beginning).filter(fits) : []],
      ["Commands of this chat", commands.filter((each) => fits(each) || query && each.about.toLowerCase().includes(query))],
    ];
    if (!query) groups.push(groups.shift());
    options = [];
    fill(list, groups.filter(([, each]) => each.length).map(([name, each]) => el("div", { role: "group", "aria-label": name },
      el("div", { class: "heading", "aria-hidden": "true", text: name }), each.slice(0, name === "Commands of this chat" && query ? Infinity : MAX_FOUND).map(optionOf))));
    note.textContent = !options.length ? (timer && !found ? "Searching…" : "Nothing fits.") : found?.searched ? `Only the newest ${count(found.searched)} sessions were searched.` : "";
    select(Math.min(selected, Math.max(options.length - 1, 0)));
  }

  function optionOf(option) {
    const number = options.length;
    const element = el("div", { id: `palette-${number}`, role: "option", onpointermove: () => select(number), onclick: () => run(number) },
      option.letter ? el("span", { class: "letter", "aria-hidden": "true", text: option.letter }) : icon(option.icon),
      el("span", { class: "title", dir: "auto", text: option.text }), option.about ? el("span", { class: "about", dir: "auto" }, option.about) : null);
    options.push({ ...option, element });
    return element;
  }

  function conversation(session) {
    const { agent, channel, excerpt, key, label, title } = session;
    const about = excerpt ? [`${excerpt.who}: `, ...marked(excerpt.text, field.value.trim())] : channel === "web" ? "" : channel;
    return { letter: [...agent][0], text: label ?? title ?? nameOf(key), about, run: () => { location.hash = addressOf(key); } };
  }

  function beginning(agent) {
    return { icon: "compose", text: `New conversation with ${agent}`, run: () => { location.hash = `#/c/${agent}.${newId().slice(16)}`; } };
  }

  function select(number) {
    options[at]?.element.removeAttribute("aria-selected");
    at = number;
    const { element } = options[at] ?? {};
    element?.setAttribute("aria-selected", "true");
    element?.scrollIntoView({ block: "nearest" });
    if (element) field.setAttribute("aria-activedescendant", element.id);
    else field.removeAttribute("aria-activedescendant");
  }

  function run(number) {
    dialog.close();
    options[number]?.run();
  }

  function onKey(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && options.length) select((at + step + options.length) % options.length);
    else if (event.key === "Enter" && !event.isComposing && options.length) run(at);
    else return;
    event.preventDefault();
  }

  show();
  refresh();
  field.focus();
}

/** Return a text in parts, in which the first match of the query is marked. */
function marked(text, query) {
  const at = text.toLowerCase().indexOf(query.toLowerCase());
  if (at < 0) return [text];
  const end = at + query.length;
  return [text.slice(0, at), el("mark", { text: text.slice(at, end) }), text.slice(end)];
}
