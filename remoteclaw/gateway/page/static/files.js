// The files of a message: a thumbnail for a picture, else a link that downloads the file.
//
// A file is a picture if its content is one of four raster formats, whatever its name is: a browser
// may run what other formats contain. It is shown from a blob of that type; nothing opens it as a page.

import { el, size } from "./dom.js";
import { icon, iconButton } from "./icons.js";
import { get } from "./rpc.js";

/** The names of files that may be pictures, and the largest that is loaded without being asked for. */
const NAMES = /\.(png|jpe?g|gif|webp)$/i, MAX_BYTES = 8_000_000;

/** Return the media type of a picture by the first bytes of its content; empty for anything else. */
function typeOf(bytes) {
  const start = String.fromCharCode(...bytes.subarray(0, 12));
  if (start.startsWith("\x89PNG\r\n\x1a\n")) return "image/png";
  if (start.startsWith("\xff\xd8\xff")) return "image/jpeg";
  if (/^GIF8[79]a/.test(start)) return "image/gif";
  return /^RIFF.{4}WEBP/s.test(start) ? "image/webp" : "";
}

/** Return a picture as a blob of its type; null if the content is no picture. */
export async function pictureOf(blob) {
  const type = blob.size <= MAX_BYTES && typeOf(new Uint8Array(await blob.slice(0, 12).arrayBuffer()));
  return type ? new Blob([blob], { type }) : null;
}

/** Return an image that shows a picture; `onerror` is called if it is damaged. */
export function image(picture, attributes = {}) {
  const src = URL.createObjectURL(picture), done = () => URL.revokeObjectURL(src);
  const made = el("img", { alt: "", decoding: "async", ...attributes, src });
  made.addEventListener("load", done);
  made.addEventListener("error", done);
  return made;
}

/** Loads thumbnails when they are about to be seen. */
const seen = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    if (!isIntersecting) continue;
    seen.unobserve(target);
    target.dispatchEvent(new Event("seen"));
  }
}, { rootMargin: "400px" });

/** Return the files of a message of the session `sid`. */
export function fileStrip(sid, files) {
  return el("div", { class: "files" }, files.map((file) => (
    NAMES.test(file.name) && file.size <= MAX_BYTES ? thumbnail(sid, file) : chip(sid, file))));
}

async function content(sid, file) {
  const answer = await get(`/page/files/${sid}/${file.blob}?size=${file.size}`).catch(() => null);
  return answer?.ok ? answer.blob() : null;
}

/** Return a link that downloads a file. */
function chip(sid, file) {
  const about = el("span", { class: "about", text: size(file.size) });
  return el("a", { class: "file", href: "#", onclick: async (event) => {
    event.preventDefault();
    const blob = await content(sid, file);
    if (blob) save(blob, file.name);
    else about.textContent = "not kept any more";
  } }, icon("file"), el("span", { class: "name", text: file.name }), about);
}

function save(blob, name) {
  const url = URL.createObjectURL(new Blob([blob], { type: "application/octet-stream" }));
  el("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

/** Return a thumbnail of a size that does not change, or a link if the content is no picture. */
function thumbnail(sid, file) {
  const element = el("span", { class: "thumbnail" });
  element.addEventListener("seen", async () => {
    const blob = await content(sid, file), picture = blob && await pictureOf(blob);
    if (!picture) return element.append(chip(sid, file));
    element.append(el("button", { type: "button", "aria-label": `Picture ${file.name}`, title: file.name, onclick: () => open(picture, file) },
      image(picture, { onerror: () => element.replaceChildren(chip(sid, file)) })));
  });
  seen.observe(element);
  return element;
}

/** Show a picture in a dialog, which Escape closes. */
function open(picture, file) {
  const dialog = el("dialog", { class: "picture", "aria-label": file.name, onclose: () => dialog.remove(),
    onclick: ({ target }) => { if (target === dialog) dialog.close(); } },
    el("div", { class: "strip" }, el("span", { class: "name", text: file.name }), el("span", { class: "about", text: size(file.size) }),
      iconButton("download", "Download", () => save(picture, file.name)),
      iconButton("close", "Close", () => dialog.close())),
    image(picture, { alt: file.name }));
  document.body.append(dialog);
  dialog.showModal();
}
