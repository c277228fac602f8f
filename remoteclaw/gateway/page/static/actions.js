// What a person does with one thing of a list: one action at a time, and what can't be undone needs
// a second click.

import { busy, button, say } from "./dom.js";

/** Return what runs an action: meanwhile these buttons rest, then `look()` shows what has become. */
export function actions(buttons, problem, look) {
  return (what) => busy(buttons, async () => {
    say(problem, "");
    try {
      await what();
      await look();
    } catch (error) {
      say(problem, error.message);
    }
  });
}

/** Return three buttons: for what can't be undone, and in its place, and in that of `others`, whether to. */
export function twice([first, no, yes], onSure, others = []) {
  const ask = button(first, () => asks(true), { class: "deny" });
  const keep = button(no, () => asks(false), { hidden: true });
  const sure = button(yes, () => { asks(false); onSure(); }, { class: "deny", hidden: true });

  function asks(isAsked) {
    for (const each of [keep, sure]) each.hidden = !isAsked;
    for (const each of [ask, ...others]) each.hidden = isAsked;
    (isAsked ? keep : ask).focus();
  }

  return [ask, keep, sure];
}
