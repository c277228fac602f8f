// Sessions by their keys: how people know them, and where they are shown.

import { el } from "./dom.js";

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
export function placeOf(sessionKey, own = null) {
  if (!own || !sessionKey.startsWith(own)) return `#/s/${encodeURIComponent(sessionKey)}`;
  const conversation = sessionKey.slice(own.length);
  return conversation === "_" ? "#/" : `#/c/${conversation}`;
}

/** Return a link to a session. */
export function sessionLink(sessionKey, text = nameOf(sessionKey)) {
  return el("a", { href: placeOf(sessionKey), text, title: sessionKey });
}
