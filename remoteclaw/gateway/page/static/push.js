// Notifications on this device by Web Push, also while it is locked.

import { whileBusy, button, el, workerScript } from "./dom.js";
import { icon } from "./icons.js";

const REFUSED = "This browser doesn't allow it: allow notifications of this page in the browser's settings.";
const AWAY = "The browser's push service can't be reached: try again later.";
const UNTRUSTED = "This browser doesn't trust the certificate of this address, so it allows no notifications: use one that it trusts.";
const HOME_SCREEN = "To be notified on an iPhone or iPad, add this page to the home screen (Share → Add to Home Screen), and log in there.";

/** Return the button that turns notifications on and off, with messages about it. */
export function notifications(link) {
  const label = el("span"), toggle = button([icon("bell"), label], () => whileBusy([toggle], change), { class: "row", hidden: true });
  const note = el("p", { class: "about", role: "status" });
  const element = el("div", { class: "notify" }, toggle, note);
  let key = null;
  let isOn = false;

  /** Show the button if the gateway and the browser support Web Push, and renew an existing subscription. */
  async function onConnected() {
    reportVisibility();
    if (!link.scopes.includes("write")) return;
    if (navigator.standalone === false) { note.textContent = HOME_SCREEN; return; }
    if (!navigator.serviceWorker || !("PushManager" in window)) return;
    key = (await link.call("push.key").catch(() => ({}))).key;
    if (!key) return;
    show(Boolean(await subscription()));
    if (isOn) await subscribe().catch(() => {});  // retried on the next connection
  }

  function show(nowOn) {
    isOn = nowOn;
    toggle.hidden = false;
    label.textContent = isOn ? "Notify me here no more" : "Notify me on this device";
  }

  async function change() {
    note.textContent = "";
    try {
      if (isOn) await unsubscribe(link);
      else if (await Notification.requestPermission() !== "granted") note.textContent = REFUSED;
      else await subscribe();
      show(Boolean(await subscription()));
    } catch (error) {
      if (error.name === "SecurityError") note.textContent = UNTRUSTED;  // the browser's own text names files
      else note.textContent = error.code && !(error instanceof DOMException) ? error.message : AWAY;
    }
  }

  async function subscribe() {
    await navigator.serviceWorker.register(workerScript(), { scope: "/" });
    const { pushManager } = await navigator.serviceWorker.ready;
    const bytes = Uint8Array.from(atob(key.replace(/-/g, "+").replace(/_/g, "/")), (character) => character.charCodeAt(0));
    let found = await pushManager.getSubscription();
    if (found && String(new Uint8Array(found.options.applicationServerKey)) !== String(bytes)) {
      await found.unsubscribe();  // it was made for another gateway
      found = null;
    }
    found ??= await pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: bytes });
    const { endpoint, keys } = found.toJSON();
    await link.call("push.subscribe", { endpoint, publicKey: keys.p256dh, auth: keys.auth });
  }

  /** Report to the gateway whether a chat is in view, and close the notifications of that chat. */
  async function reportVisibility() {
    const isVisible = document.visibilityState === "visible" && /^(#\/?([cs]\/.*)?)?$/.test(location.hash);
    if (link.scopes.includes("write")) link.call("push.visible", { isVisible }).catch(() => {});
    const worker = await navigator.serviceWorker?.getRegistration("/");
    for (const each of isVisible && await worker?.getNotifications() || []) {
      if (each.data.place === (location.hash || "#/")) each.close();
    }
  }

  addEventListener("visibilitychange", reportVisibility);
  addEventListener("hashchange", reportVisibility);
  navigator.serviceWorker?.addEventListener("message", ({ data }) => { location.hash = data.place; });
  return { element, onConnected };
}

async function subscription() {
  return (await navigator.serviceWorker?.getRegistration("/"))?.pushManager.getSubscription();
}

/** End this browser's subscription. */
export async function unsubscribe(link) {
  const found = await subscription();
  if (!found) return;
  await found.unsubscribe();
  await link.call("push.unsubscribe");
}
