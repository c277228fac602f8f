// Links with which others watch a terminal without a login, and without typing.

import { whileBusy, button, el, fill, moment, problemLine, setMessage } from "./dom.js";
import { iconButton } from "./icons.js";
import { popover } from "./terminal_menu.js";

const CHOICES = [[60, "1 hour"], [120, "2 hours"], [480, "8 hours"], [1440, "1 day"], [10080, "1 week"]];

/** Return the button that opens the panel of links; `call(method, params)` calls a method about the terminal. */
export function sharePanel(call) {
  const minutes = el("select", { "aria-label": "How long" }, CHOICES.map(([value, text]) => el("option", { value, text, selected: value === 120 })));
  const make = button("Make a link", () => run(create), { class: "primary" });
  const made = el("input", { class: "tty-link", readonly: true, "aria-label": "The link, which is shown only now", onfocus: () => made.select() });
  const copy = iconButton("copy", "Copy the link", copyLink);
  const fresh = el("div", { class: "setting", hidden: true }, made, copy);
  const note = el("p", { class: "about", role: "status" }), problem = problemLine();
  const links = el("ul", { class: "tty-links" });
  const shared = popover("link", "Share this terminal",
    el("p", { text: "Whoever has the link sees this screen for as long as you choose, and nothing else: no earlier rows, no chat, no files. They can't type." }),
    el("div", { class: "setting" }, minutes, make), fresh, note, problem, links);

  shared.onOpen(() => {
    fresh.hidden = true;
    made.value = note.textContent = "";
    run(async () => show(await call("terminals.links")));
  });

  async function create() {
    const { token } = await call("terminals.share", { minutes: Number(minutes.value) });
    made.value = `${location.origin}/watch#${token}`;
    fresh.hidden = false;
    await copyLink();
    show(await call("terminals.links"));
  }

  async function copyLink() {
    try {
      await navigator.clipboard.writeText(made.value);
      note.textContent = "Copied. It is shown only now.";
    } catch {  // pages have no clipboard over plain HTTP
      made.focus();
      note.textContent = "Copy it from the field: it is shown only now.";
    }
  }

  function show({ links: valid }) {
    fill(links, valid.map(({ id, by, expiresMs }) => el("li", {},
      el("span", {}, "Until ", moment(expiresMs), el("span", { class: "about", text: ` by ${by}` })),
      button("Revoke", () => run(async () => show(await call("terminals.unshare", { link: id }))), { class: "quiet danger" }))));
  }

  const run = (action) => whileBusy([make], async () => {
    setMessage(problem, "");
    await action().catch((error) => setMessage(problem, error.message));
  });

  return shared;
}
