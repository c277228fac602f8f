// The page: the login, the navigation, and the view of the current address.

import { OpenRequests, requestsView } from "./requests.js";
import { chatView } from "./chat.js";
import { button, count, el, fill, liveRegion, setMessage } from "./dom.js";
import { drawer } from "./drawer.js";
import { icon } from "./icons.js";
import { loadHome } from "./session_keys.js";
import { listenForKeys, showKeys } from "./keys.js";
import { lazyView } from "./lazy_view.js";
import { openPalette } from "./palette.js";
import { notifications, unsubscribe } from "./push.js";
import { get, Link, post, reasonOf, storeKey } from "./rpc.js";
import { sessionsList } from "./sessions.js";
import { sidebar, VIEWS } from "./sidebar.js";

const link = new Link();
const requests = new OpenRequests(link);
const status = el("p", { class: "status", role: "status", hidden: true });
const main = el("main", { id: "main", tabindex: "-1" });
const sessions = sessionsList(link), push = notifications(link);
const side = sidebar({ find, conversations: sessions, menu: [push.element, button([icon("keyboard"), "Keys"], showKeys, { class: "row", popovertarget: "person" }), button([icon("leave"), "Log out"], logOut, { class: "row" })] });
const menu = drawer(side.element, main);
let title = "";
let view = null;
let wasConnected = false;
let hasRung = false;  // whether a terminal's bell rang while the window had no focus

/** The views by the first part of the address. */
const routes = {
  "": { title: "Chat", open: () => chatView(link, requests) },
  c: { title: "Chat", open: (parts) => chatView(link, requests, decodedPart(parts[1])) },
  s: { title: "Session", open: (parts) => lazyView("Session", async () => (await import("./session.js")).sessionView, link, decodedPart(parts[1]), requests) },
  requests: { title: "Requests", open: () => requestsView(link, requests) },
  cron: { title: "Cron", open: () => lazyView("Cron", async () => (await import("./cron.js")).cronView, link) },
  usage: { title: "Usage", open: () => lazyView("Usage", async () => (await import("./usage.js")).usageView, link) },
  fleet: { title: "Fleet", open: () => lazyView("Fleet", async () => (await import("./fleet.js")).fleetView, link) },
};

/** Open the palette. */
function find() {
  const places = [["#/", "Chat", "chat"], ...VIEWS.map(([route, name]) => [`#/${route}`, name, route])];
  openPalette(link, { known: sessions.listed(), view, places });
}

/** Show the number of open requests in the window's title and in the sidebar. */
function updateTitle() {
  const open = requests.list.length;
  side.setRequests(open);
  menu.setRequests(open);
  document.title = `${hasRung ? "🔔 " : ""}${open ? `(${count(open)}) ` : ""}${title} · RemoteClaw`;
}
requests.addEventListener("change", updateTitle);

/** Show a bell in the window's title, until the window has the focus. */
function setRinging(isRinging) {
  hasRung = isRinging;
  updateTitle();
}
addEventListener("view-title", ({ detail }) => { title = detail; updateTitle(); });
addEventListener("terminal-bell", () => setRinging(!document.hasFocus()));
addEventListener("focus", () => setRinging(false));
addEventListener("view-title", ({ detail }) => {
  title = detail;
  updateTitle();
});

/** Return a decoded part of the address; the part itself if it is malformed. */
function decodedPart(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** Show the view of the current address; `isFirst` while the page is being loaded. */
function showRoute({ isFirst = false } = {}) {
  const parts = location.hash.replace(/^#\/?/, "").split("/");
  const route = routes[parts[0]] ?? routes[""];
  view?.close?.();
  view = route.open(parts[0] in routes ? parts : [""]);
  title = route.title;
  updateTitle();
  fill(main, view.element);
  const heading = view.element.querySelector("h1");
  heading.tabIndex = -1;
  if (!isFirst) heading.focus();  // for users of a screen reader or of the keyboard
  side.mark(parts[0]);
  if (wasConnected) view.onConnected?.();
}

/** Replace the page by a message and further elements. */
function coverPage(message, ...elements) {
  fill(document.body, el("main", { class: "locked" }, el("div", { class: "card" },
    el("h1", {}, icon("mark"), "RemoteClaw"),
    el("p", { role: "status", text: message }), ...elements)));
}

/** Replace the page by the form for a login link. */
function showLogin(message) {
  if (document.querySelector(".locked form")) return;  // already shown by logOut()
  view?.close?.();
  view = null;
  coverPage(message,
    linkForm(),
    el("p", { class: "about" }, "On the computer where it runs, ", el("code", { text: "remoteclaw open" }), " prints a link that logs you in."));
}

/** Return a form for a login link: an app on the home screen has no address bar. */
function linkForm() {
  const field = el("input", { type: "text", autocomplete: "off", "aria-label": "Link", placeholder: "Paste your login link", required: true });
  return el("form", { onsubmit: (event) => {
    event.preventDefault();
    const code = `#${field.value.trim().split("#").pop()}`;
    if (CODE.test(code)) location.hash = code;
    else { field.setCustomValidity("This is not a link of `remoteclaw open`."); field.reportValidity(); }
  }, oninput: () => field.setCustomValidity("") }, field, el("button", { type: "submit" }, "Log in"));
}

async function logOut() {
  const answer = await post("/page/logout", {}).catch(() => null);
  if (!answer?.ok) return setMessage(status, "You are not logged out: RemoteClaw is away.");
  sessionStorage.clear();  // it contains drafts
  storeKey(null);
  showLogin("You are logged out.");
  unsubscribe(link).catch(() => {});  // the gateway has removed the subscription with the token
}

function build() {
  fill(document.body,
    el("a", { class: "skip", href: "#main", text: "Skip to the content", onclick: (event) => { event.preventDefault(); main.focus(); } }),
    side.element, menu.button, main, status, liveRegion);
  listenForKeys(find);
  addEventListener("hashchange", () => {
    menu.close();
    showRoute();
  });
  link.addEventListener("event", ({ detail }) => {
    view?.onEvent?.(detail);
  });
  link.addEventListener("state", ({ detail }) => {
    if (detail === "locked") {
      showLogin(link.reason);
      return;
    }
    const isConnected = detail === "connected";
    setMessage(status, isConnected ? "" : link.reason);
    wasConnected = isConnected;
    if (isConnected) {
      loadHome().then(side.setPerson).then(() => view?.onConnected?.()).then(sessions.onConnected);
      push.onConnected();
    }
  });
  showRoute({ isFirst: true });
  link.start();
}

const RETRY_MS = 1000;
const CODE = /^#([\w-]{20,})$/;

/** Exchange a login code for the cookie and the key; return the problem, empty for none. */
async function logIn(code) {
  for (;;) {
    const answer = await post("/page/login", { code }).catch(() => null);
    if (answer?.ok) {
      storeKey((await answer.json()).key);
      return "";
    }
    if (answer && answer.status !== 503) return reasonOf(answer);
    coverPage("RemoteClaw is away. Trying again…");
    await new Promise((resolve) => { setTimeout(resolve, RETRY_MS); });
  }
}

async function begin() {
  try {
    localStorage.length;
  } catch {
    return coverPage("This browser stores nothing for this page, so you can't log in: allow it in the browser's settings.");
  }
  addEventListener("hashchange", () => {
    if (CODE.test(location.hash)) location.reload();  // a login link was opened in this tab
  });
  const code = CODE.exec(location.hash)?.[1];
  if (code) {
    history.replaceState(null, "", location.pathname);  // the code is secret, and must not stay in the history
    const problem = await logIn(code);
    const known = problem && await get("/page/whoami").catch(() => null);
    if (known?.status === 401) return showLogin(problem);
  }
  build();
}

begin();
