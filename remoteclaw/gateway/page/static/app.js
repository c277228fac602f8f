// The page: who is logged in, what is shown, and what the gateway tells.

import { OpenAsks, asksView } from "./asks.js";
import { chatView } from "./chat.js";
import { button, count, el, fill, heard, say } from "./dom.js";
import { drawer } from "./drawer.js";
import { learnOwn } from "./session_keys.js";
import { later } from "./later.js";
import { forget, notifications } from "./push.js";
import { get, Link, post } from "./rpc.js";
import { sessionsList } from "./sessions.js";

const link = new Link();
const asks = new OpenAsks(link);
const status = el("p", { class: "status", role: "status", hidden: true });
const main = el("main", { id: "main", tabindex: "-1" });
const aside = el("aside", { id: "conversations", "aria-label": "Conversations" });
const menu = drawer(aside, main);
const badge = el("span", { class: "badge", hidden: true });
let title = "";
let view = null;
let wasConnected = false;
let hasRung = false;  // a terminal's bell, while nobody looked

const places = {
  "": { title: "Chat", open: () => chatView(link, asks) },
  c: { title: "Chat", open: (parts) => chatView(link, asks, parts[1]) },
  s: { title: "Session", open: (parts) => later("Session", async () => (await import("./session.js")).sessionView, link, decoded(parts[1]), asks) },
  requests: { title: "Requests", open: () => asksView(link, asks) },
  cron: { title: "Cron", open: () => later("Cron", async () => (await import("./cron.js")).cronView, link) },
  usage: { title: "Usage", open: () => later("Usage", async () => (await import("./usage.js")).usageView, link) },
  fleet: { title: "Fleet", open: () => later("Fleet", async () => (await import("./fleet.js")).fleetView, link) },
};

function navigation() {
  const links = [["#/", "Chat"], ["#/requests", "Requests"], ["#/cron", "Cron"], ["#/usage", "Usage"], ["#/fleet", "Fleet"]];
  return el("nav", { "aria-label": "Main" },
    links.map(([href, text]) => el("a", { href, "data-place": href }, text, href === "#/requests" ? badge : null)));
}

/** Say on every view how many requests wait. */
function entitle() {
  const open = asks.list.length;
  badge.hidden = !open;
  badge.textContent = count(open);
  badge.parentElement?.setAttribute("aria-label", open ? `Requests, ${count(open)} open` : "Requests");
  document.title = `${hasRung ? "🔔 " : ""}${open ? `(${count(open)}) ` : ""}${title} · RemoteClaw`;
}
asks.addEventListener("change", entitle);

/** Have the window's title say that a terminal's bell has rung, until a person looks. */
function ring(isRinging) {
  hasRung = isRinging;
  entitle();
}
addEventListener("terminal-bell", () => ring(!document.hasFocus()));
addEventListener("focus", () => ring(false));

/** Return what a part of an address says; one that a person has broken says itself. */
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** Show the place that the address names; `isFirst` while the page is being opened. */
function route({ isFirst = false } = {}) {
  const parts = location.hash.replace(/^#\/?/, "").split("/");
  const place = places[parts[0]] ?? places[""];
  view?.close?.();
  view = place.open(parts[0] in places ? parts : [""]);
  title = place.title;
  entitle();
  fill(main, view.element);
  const heading = view.element.querySelector("h1");
  heading.tabIndex = -1;
  if (!isFirst) heading.focus();  // who hears or types is at the new place, too
  document.body.dataset.view = parts[0] || "chat";
  for (const each of document.querySelectorAll("nav a")) {
    const isHere = each.dataset.place === `#/${parts[0] === "c" ? "" : parts[0]}`;
    if (isHere) {
      each.setAttribute("aria-current", "page");
      each.scrollIntoView({ block: "nearest", inline: "nearest" });  // on phones not all have room
    } else {
      each.removeAttribute("aria-current");
    }
  }
  if (wasConnected) view.connected?.();
}

/** Show nothing but some words. */
function cover(why, ...how) {
  fill(document.body, el("main", { class: "locked" },
    el("h1", { text: "RemoteClaw" }),
    el("p", { role: "status", text: why }), ...how));
}

function locked(why) {
  if (document.querySelector(".locked form")) return;  // who logs out hears of the token's end, too
  view?.close?.();
  view = null;
  cover(why,
    el("p", {}, "On the computer where it runs, ", el("code", { text: "remoteclaw open" }), " prints a link that logs you in."),
    pasting());
}

/** Return where a link can be put that would open elsewhere: an app on the home screen has no address bar. */
function pasting() {
  const field = el("input", { type: "text", autocomplete: "off", "aria-label": "Link", placeholder: "Or paste the link here", required: true });
  return el("form", { class: "row", onsubmit: (event) => {
    event.preventDefault();
    const code = `#${field.value.trim().split("#").pop()}`;
    if (CODE.test(code)) location.hash = code;
    else { field.setCustomValidity("This is not a link of `remoteclaw open`."); field.reportValidity(); }
  }, oninput: () => field.setCustomValidity("") }, field, el("button", { type: "submit" }, "Log in"));
}

async function logOut() {
  const answer = await post("/page/logout", {}).catch(() => null);
  if (!answer?.ok) return say(status, "You are not logged out: RemoteClaw is away.");
  sessionStorage.clear();  // it has drafts
  locked("You are logged out.");
  forget(link).catch(() => {});  // the gateway notifies nobody without a token
}

function build() {
  const sessions = sessionsList(link);
  const push = notifications(link);
  fill(aside, sessions.element,
    el("div", { class: "foot" }, push.element, button("Log out", logOut, { class: "quiet" })));
  fill(document.body,
    el("a", { class: "skip", href: "#main", text: "Skip to the content", onclick: (event) => { event.preventDefault(); main.focus(); } }),
    el("header", {},
      menu.button,
      el("a", { class: "name", href: "#/", text: "RemoteClaw" }),
      navigation()),
    aside, main, status, heard);
  addEventListener("hashchange", () => {
    menu.close();
    route();
  });
  link.addEventListener("told", ({ detail }) => {
    sessions.told?.(detail);
    view?.told?.(detail);
  });
  link.addEventListener("state", ({ detail }) => {
    if (detail === "locked") {
      locked("You are not logged in, or not any more.");
      return;
    }
    const isConnected = detail === "connected";
    say(status, isConnected ? "" : link.why);
    wasConnected = isConnected;
    if (isConnected) {
      const isChat = ["chat", "c"].includes(document.body.dataset.view);  // which tells whose it is
      Promise.resolve(isChat || learnOwn()).then(() => view?.connected?.()).then(sessions.connected);
      push.connected();
    }
  });
  route({ isFirst: true });
  link.start();
}

const AGAIN_MS = 1000;
const CODE = /^#([\w-]{20,})$/;

async function logIn(code) {
  for (;;) {
    const answer = await post("/page/login", { code }).catch(() => null);
    if (answer?.ok) return "";
    if (answer && answer.status !== 503) {
      const told = await answer.json().catch(() => null);
      return told?.error?.message ?? "The login failed.";
    }
    cover("RemoteClaw is away. Trying again…");
    await new Promise((resolve) => { setTimeout(resolve, AGAIN_MS); });
  }
}

async function begin() {
  addEventListener("hashchange", () => {
    if (CODE.test(location.hash)) location.reload();  // a link that is followed where the page is open
  });
  const code = CODE.exec(location.hash)?.[1];
  if (code) {
    history.replaceState(null, "", location.pathname);  // it is good once, and belongs in no history
    const problem = await logIn(code);
    const known = problem && await get("/page/whoami").catch(() => null);
    if (known?.status === 401) return locked(problem);
  }
  build();
}

begin();
