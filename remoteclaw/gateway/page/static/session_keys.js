// Sessions by their keys: how people know them, and where they are shown.

import { el } from "./dom.js";
import { get } from "./rpc.js";

let own = null;  // how the keys of one's own conversations begin

/** Learn which conversations are one's own, where no chat has been open that tells. */
export async function learnOwn() {
  const answer = own ? null : await get("/page/whoami").catch(() => null);
  if (answer?.ok) owns((await answer.json()).session);
}

/** Take that a session is one of one's own conversations; null: there are none. */
export function owns(sessionKey) {
  own = sessionKey?.replace(/[^:]*$/, "") ?? null;
}

/** Return the key of one's own first conversation, if it is known. */
export function ownFirst() {
  return own && `${own}_`;
}

/** Return the agent, the channel and the chat of a session. */
export function partsOf(sessionKey) {
  const [agent, channel, , chat] = sessionKey.split("/").map((part) => decodeURIComponent(part.split(":")[0]));
  return [agent, channel, chat];
}

/** Return a session as people know it who have no title of it. */
export function nameOf(sessionKey) {
  return partsOf(sessionKey).filter(Boolean).join(" · ");
}

/** Return the place of a session: one's own conversations are there to write in, others to read. */
export function placeOf(sessionKey) {
  if (!own || !sessionKey.startsWith(own)) return `#/s/${encodeURIComponent(sessionKey)}`;
  const conversation = sessionKey.slice(own.length);
  return conversation === "_" ? "#/" : `#/c/${conversation}`;
}

/** Return a link to a session. */
export function sessionLink(sessionKey, text = nameOf(sessionKey)) {
  return el("a", { href: placeOf(sessionKey), text, title: sessionKey });
}
