// Places that nothing tells of what happens there: the page looks, while it can be seen.

/** Call `look()` again and again, one call at a time; return what ends that. */
export function looking(look, everyMs) {
  let isLooking = false;

  async function again() {
    if (isLooking || document.visibilityState !== "visible") return;
    isLooking = true;
    await look().finally(() => { isLooking = false; });
  }

  const timer = setInterval(again, everyMs);
  document.addEventListener("visibilitychange", again);
  return () => {
    clearInterval(timer);
    document.removeEventListener("visibilitychange", again);
  };
}
