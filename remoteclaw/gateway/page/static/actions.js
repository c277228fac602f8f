// Actions on an item of a list: one runs at a time, and one that can't be undone needs a second click.

import { whileBusy, button, setMessage } from "./dom.js";

/** Return a function that runs an action: the buttons are off while it runs. */
export function actionRunner(buttons, problem) {
  return (action) => whileBusy(buttons, async () => {
    setMessage(problem, "");
    try {
      await action();
    } catch (error) {
      setMessage(problem, error.message);
    }
  });
}

/** Return three buttons: one that requests for confirmation, and two that then replace it and `others`. */
export function confirmButtons([first, no, yes], onConfirm, others = []) {
  const ask = button(first, () => setAsking(true), { class: "danger" });
  const keep = button(no, () => setAsking(false), { hidden: true });
  const sure = button(yes, () => { setAsking(false); onConfirm(); }, { class: "danger sure", hidden: true });

  function setAsking(isAsking) {
    for (const each of [keep, sure]) each.hidden = !isAsking;
    for (const each of [ask, ...others]) each.hidden = isAsking;
    (isAsking ? keep : ask).focus();
  }

  return [ask, keep, sure];
}
