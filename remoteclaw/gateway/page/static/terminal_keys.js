// Keys of a browser as a terminal's: what is text comes as input, what is a key has a name.

const NAMES = {
  Enter: "enter", Tab: "tab", Escape: "esc", Backspace: "backspace", Delete: "delete", Insert: "insert",
  Home: "home", End: "end", PageUp: "pageup", PageDown: "pagedown",
  ArrowUp: "up", ArrowDown: "down", ArrowLeft: "left", ArrowRight: "right",
};
const FUNCTION = /^F([1-9]|1[0-2])$/;
const isMac = /mac|iphone|ipad/i.test(navigator.platform);

/**
 * Return what a keydown means: `k:NAME` for the terminal, `leave` for the way out, or null, which
 * leaves it to the browser: text, which comes as input, and what browsers keep for themselves.
 */
export function keyOf(event, { hasSelection = false, isMacKeyboard = isMac } = {}) {
  const { key, ctrlKey: ctrl, altKey: alt, shiftKey: shift, metaKey: meta } = event;
  if (event.isComposing || event.keyCode === 229 || meta || event.getModifierState?.("AltGraph")) return null;
  if (ctrl && shift && event.code === "Period") return "leave";
  const name = NAMES[key] ?? (FUNCTION.test(key) ? key.toLowerCase() : null);
  if (name) return named(name, { ctrl, alt, shift });
  if ([...key].length !== 1) return null;
  if (ctrl) return control(key.toLowerCase(), { alt, shift, hasSelection });
  if (alt && !isMacKeyboard && key >= " " && key <= "~") return `k:alt+${key === " " ? "space" : key}`;
  return null;
}

function named(name, { ctrl, alt, shift }) {
  if (name === "tab" && (ctrl || alt)) return null;  // goes to other tabs and windows
  if (name === "insert" && (ctrl || shift)) return null;  // copies and pastes
  return `k:${ctrl ? "ctrl+" : ""}${alt ? "alt+" : ""}${shift ? "shift+" : ""}${name}`;
}

function control(key, { alt, shift, hasSelection }) {
  if (key === "_" || key === "/") return `k:ctrl+${key}`;  // undo
  if (shift || alt || "wtnv".includes(key)) return null;  // windows and tabs, and a paste comes as one
  if (key === "c" && hasSelection) return null;  // copies
  if (key === "[") return "k:esc";
  if (key === " ") return "k:ctrl+space";
  return /^[a-z\]]$/.test(key) ? `k:ctrl+${key}` : null;  // others zoom, and choose tabs
}

/** Return the keys of a text that was typed; the key Ctrl of the key bar holds for a letter. */
export function keysOfText(text, isControl = false) {
  return isControl && /^[a-z]$/i.test(text) ? [`k:ctrl+${text.toLowerCase()}`] : [`t:${text}`];
}

/** Return a key of the key bar as it is pressed. */
export function keyOfBar(name, isControl = false) {
  return `k:${isControl && ["up", "down", "left", "right"].includes(name) ? "ctrl+" : ""}${name}`;
}
