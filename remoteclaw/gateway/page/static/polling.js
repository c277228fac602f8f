// Polling for views whose changes the gateway sends no events about.

/** Call `refresh()` regularly while the page is visible, one call at a time; return a function that stops it. */
export function poll(refresh, everyMs) {
  let isRefreshing = false;

  async function tick() {
    if (isRefreshing || document.visibilityState !== "visible") return;
    isRefreshing = true;
    await refresh().finally(() => { isRefreshing = false; });
  }

  const timer = setInterval(tick, everyMs);
  document.addEventListener("visibilitychange", tick);
  return () => {
    clearInterval(timer);
    document.removeEventListener("visibilitychange", tick);
  };
}
