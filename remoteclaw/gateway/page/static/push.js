// Notifications on this device, also where it is locked: Web Push.

import { busy, button, el, workerScript } from "./dom.js";

const REFUSED = "This browser doesn't allow it: allow notifications of this page in the browser's settings.";
const AWAY = "The browser's push service can't be reached: try again later.";
const HOME_SCREEN = "To be notified on an iPhone or iPad, add this page to the home screen (Share → Add to Home Screen), and log in there.";

/** What a person is asked and told about notifications. */
export function notifications(link) {
  const toggle = button("", () => busy([toggle], change), { hidden: true });
  const words = el("p", { class: "about", role: "status" });
  const element = el("div", { class: "notify" }, toggle, words);
  let key = null;
  let isOn = false;

  /** Offer what the gateway and the browser can do; what was subscribed before goes on. */
  async function connected() {
    look();
    if (!link.scopes.includes("write")) return;
    if (navigator.standalone === false) { words.textContent = HOME_SCREEN; return; }
    if (!navigator.serviceWorker || !("PushManager" in window)) return;
    key = (await link.call("push.key").catch(() => ({}))).key;
    if (!key) return;
    show(Boolean(await subscription()));
    if (isOn) await subscribe().catch(() => {});  // next time, it is tried again
  }

  function show(nowOn) {
    isOn = nowOn;
    toggle.hidden = false;
    toggle.textContent = isOn ? "Notify me here no more" : "Notify me on this device";
  }

  async function change() {
    words.textContent = "";
    try {
      if (isOn) await forget(link);
      else if (await Notification.requestPermission() !== "granted") words.textContent = REFUSED;
      else await subscribe();
      show(Boolean(await subscription()));
    } catch (error) {
      words.textContent = error.code ? error.message : AWAY;
    }
  }

  async function subscribe() {
    await navigator.serviceWorker.register(workerScript(), { scope: "/" });
    const { pushManager } = await navigator.serviceWorker.ready;
    const bytes = Uint8Array.from(atob(key.replace(/-/g, "+").replace(/_/g, "/")), (one) => one.charCodeAt(0));
    let found = await pushManager.getSubscription();
    if (found && String(new Uint8Array(found.options.applicationServerKey)) !== String(bytes)) {
      await found.unsubscribe();  // it was made for another gateway
      found = null;
    }
    found ??= await pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: bytes });
    const { endpoint, keys } = found.toJSON();
    await link.call("push.subscribe", { endpoint, publicKey: keys.p256dh, auth: keys.auth });
  }

  /** Say whether a chat is in view: then its messages are no news here. */
  async function look() {
    const isVisible = document.visibilityState === "visible" && /^(#\/?(c\/.*)?)?$/.test(location.hash);
    if (link.scopes.includes("write")) link.call("push.visible", { isVisible }).catch(() => {});
    const worker = await navigator.serviceWorker?.getRegistration("/");
    for (const one of isVisible && await worker?.getNotifications() || []) {
      if (one.data.place === (location.hash || "#/")) one.close();
    }
  }

  addEventListener("visibilitychange", look);
  addEventListener("hashchange", look);
  navigator.serviceWorker?.addEventListener("message", ({ data }) => { location.hash = data.place; });
  return { element, connected };
}

async function subscription() {
  return (await navigator.serviceWorker?.getRegistration("/"))?.pushManager.getSubscription();
}

/** Have this browser notified no more. */
export async function forget(link) {
  const found = await subscription();
  if (!found) return;
  await found.unsubscribe();
  await link.call("push.unsubscribe");
}
