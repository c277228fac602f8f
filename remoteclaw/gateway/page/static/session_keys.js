// Names and addresses of sessions, from their keys.

import { el } from "./dom.js";
import { get } from "./rpc.js";

let own = null;  // the common prefix of the keys of the person's own conversations

/** Load the prefix of the person's own conversations, unless a chat has set it already. */
export async function loadOwnKey() {
  const answer = own ? null : await get("/page/whoami").catch(() => null);
  if (answer?.ok) setOwn((await answer.json()).session);
}

/** Set the key of one of the person's own conversations; null if the person has none. */
export function setOwn(sessionKey) {
  own = sessionKey?.replace(/[^:]*$/, "") ?? null;
}

/** Return the key of the person's first conversation, null if it is not known. */
export function firstOwnKey() {
  return own && `${own}_`;
}

/** Return the agent, the channel and the chat of a session key. */
export function partsOf(sessionKey) {
  const [agent, channel, , chat] = sessionKey.split("/").map((part) => decodeURIComponent(part.split(":")[0]));
  return [agent, channel, chat];
}

/** Return the name of a session without a title. */
export function nameOf(sessionKey) {
  return partsOf(sessionKey).filter(Boolean).join(" · ");
}

/** Return the address of a session: the chat of an own conversation, or the view of any other session. */
export function addressOf(sessionKey) {
  if (!own || !sessionKey.startsWith(own)) return `#/s/${encodeURIComponent(sessionKey)}`;
  const conversation = sessionKey.slice(own.length);
  return conversation === "_" ? "#/" : `#/c/${conversation}`;
}

/** Return a link to a session. */
export function sessionLink(sessionKey, text = nameOf(sessionKey)) {
  return el("a", { href: addressOf(sessionKey), text, title: sessionKey });
}
