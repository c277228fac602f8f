// Names and addresses of sessions, from their keys.

import { el } from "./dom.js";
import { get } from "./rpc.js";

let home = null;  // the key of the person's conversation with the first agent
let person = "";  // the name of the person

/** Load the key of the person's conversation with the first agent, and the person's name, which is returned. */
export async function loadHome() {
  const answer = home ? null : await get("/page/whoami").catch(() => null);
  if (answer?.ok) ({ session: home, name: person } = await answer.json());
  return person;
}

/** Return the key of the person's conversation with the first agent, null if it is not known. */
export function homeKey() {
  return home;
}

/** Return the place of a session key without its agent and its thread. */
function placeOf(sessionKey) {
  return sessionKey?.slice(sessionKey.indexOf("/")).replace(/[^:]*$/, "");
}

/** Return whether a session is a conversation of the page's user. */
export function isOwn(sessionKey) {
  return placeOf(sessionKey) === placeOf(home);
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
  if (sessionKey === home) return "#/";
  if (!isOwn(sessionKey)) return `#/s/${encodeURIComponent(sessionKey)}`;
  return `#/c/${sessionKey.split(":").pop()}`;
}

/** Return a link to a session. */
export function sessionLink(sessionKey, text = nameOf(sessionKey)) {
  return el("a", { href: addressOf(sessionKey), text, title: sessionKey });
}
