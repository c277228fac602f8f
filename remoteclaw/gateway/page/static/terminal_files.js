// Pictures and files that a person pastes or drops into a terminal: the agent gets them, and the program their paths.

import { size } from "./dom.js";
import { post, reasonOf } from "./rpc.js";

/** The most files at once, and the largest file, in bytes: as the gateway takes them. */
const MAX_FILES = 10, MAX_BYTES = 20 * 1024 * 1024;

/** Upload files, and type their paths into the terminal `sid` of a session. Raises an error whose message says why not. */
export async function dropFiles(link, { sid, sessionKey }, files) {
  const wanted = [...files];
  if (wanted.length > MAX_FILES) throw new Error(`At most ${MAX_FILES} files go into the terminal at once.`);
  const large = wanted.find((file) => file.size > MAX_BYTES);
  if (large) throw new Error(`${large.name} has ${size(large.size)}, and a file may have at most ${size(MAX_BYTES)}.`);
  const stored = [];
  for (const file of wanted) {
    const answer = await post(`/page/files?session=${encodeURIComponent(sessionKey)}&name=${encodeURIComponent(file.name || "picture.png")}`, file).catch(() => null);
    if (!answer) throw new Error(`${file.name} was not uploaded: the connection was lost, or it can't be read.`);
    if (!answer.ok) throw new Error(await reasonOf(answer));
    stored.push(await answer.json());
  }
  await link.call("terminals.drop", { sid, files: stored });
}

/** Take pictures and files that are pasted, or dropped on an element, while `isOn()`; `take(files)` gets them. */
export function takeFiles(element, take) {
  const filesOf = (transfer) => [...transfer?.files ?? []];
  const hasFiles = ({ dataTransfer }) => [...dataTransfer?.types ?? []].includes("Files");
  let depth = 0;  // how many elements below the cursor it has entered and not left
  const setOver = (count) => { depth = Math.max(0, count); element.classList.toggle("tty-over", depth > 0); };
  element.addEventListener("paste", (event) => {
    const files = filesOf(event.clipboardData);
    const isText = ["text/plain", "text/html"].every((type) => event.clipboardData.types.includes(type));
    if (!files.length || isText) return;  // a copied text may have a picture of itself, a copied file has its name
    event.preventDefault();
    event.stopPropagation();
    take(files);
  }, { capture: true });
  element.addEventListener("dragenter", (event) => { if (hasFiles(event)) setOver(depth + 1); });
  element.addEventListener("dragleave", (event) => { if (hasFiles(event)) setOver(depth - 1); });
  element.addEventListener("dragover", (event) => { if (hasFiles(event)) event.preventDefault(); });
  element.addEventListener("drop", (event) => {
    setOver(0);
    if (!hasFiles(event)) return;
    event.preventDefault();
    take(filesOf(event.dataTransfer));
  });
}
