// A dialog over the page: Escape and a click beside it close it, and the focus returns.

import { el } from "./dom.js";

/** Return an open dialog with content, which is removed when it is closed. */
export function openDialog(attributes, ...content) {
  const dialog = el("dialog", { ...attributes, onclose: () => dialog.remove(), onclick: ({ target }) => { if (target === dialog) dialog.close(); } }, content);
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}
