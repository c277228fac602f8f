// The service worker: shows notifications, and opens their conversation on a click. It caches nothing.

addEventListener("install", () => skipWaiting());
addEventListener("activate", (event) => event.waitUntil(clients.claim()));
addEventListener("push", (event) => event.waitUntil(show(event.data.json())));
addEventListener("notificationclick", (event) => {
  event.notification.close();
  event.waitUntil(open(event.notification.data.place));
});

/** Show a notification, which replaces the last one of the same conversation. Browsers require one per push. */
function show({ title, body, place }) {
  return registration.showNotification(title, { body, tag: place, renotify: true, icon: "/page/icon.png", data: { place } });
}

async function open(place) {
  const windows = await clients.matchAll({ type: "window", includeUncontrolled: true });
  const page = windows.find((one) => new URL(one.url).pathname === "/"); // not one of a guest
  if (!page) return clients.openWindow(`/${place}`);
  page.postMessage({ place });
  return page.focus();
}
