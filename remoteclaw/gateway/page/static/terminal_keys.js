// Converts the browser's keys into those of `terminals.type`. Text arrives as input events instead.

const NAMES = {
  Enter: "enter", Tab: "tab", Escape: "esc", Backspace: "backspace", Delete: "delete", Insert: "insert",
  Home: "home", End: "end", PageUp: "pageup", PageDown: "pagedown",
  ArrowUp: "up", ArrowDown: "down", ArrowLeft: "left", ArrowRight: "right",
};
const FUNCTION = /^F([1-9]|1[0-2])$/;
const isMac = /mac|iphone|ipad/i.test(navigator.platform);

/**
 * Return the meaning of a keydown: `k:NAME` for the terminal, `leave` to leave it, `search` to search in it, or null for text
 * and for the browser's own shortcuts, which the browser handles.
 */
export function keyOf(event, { hasSelection = false, isMacKeyboard = isMac } = {}) {
  const { key, ctrlKey: ctrl, altKey: alt, shiftKey: shift, metaKey: meta } = event;
  if (event.isComposing || event.keyCode === 229 || meta || event.getModifierState?.("AltGraph")) return null;
  if (ctrl && shift && event.code === "Period") return "leave";
  if (ctrl && !alt && key.toLowerCase() === "f") return shift ? "k:ctrl+f" : "search";
  const name = NAMES[key] ?? (FUNCTION.test(key) ? key.toLowerCase() : null);
  if (name) return named(name, { ctrl, alt, shift });
  if ([...key].length !== 1) return null;
  if (ctrl) return control(key.toLowerCase(), { alt, shift, hasSelection });
  if (alt && !isMacKeyboard && key >= " " && key <= "~") return `k:alt+${key === " " ? "space" : key}`;
  return null;
}

function named(name, { ctrl, alt, shift }) {
  if (name === "tab" && (ctrl || alt)) return null;  // switches tabs and windows
  if (name === "insert" && (ctrl || shift)) return null;  // copy and paste
  return `k:${ctrl ? "ctrl+" : ""}${alt ? "alt+" : ""}${shift ? "shift+" : ""}${name}`;
}

function control(key, { alt, shift, hasSelection }) {
  if (key === "_" || key === "/") return `k:ctrl+${key}`;  // undo
  if (shift || alt || "wtnv".includes(key)) return null;  // shortcuts for windows and tabs; Ctrl+V arrives as a paste event
  if (key === "c" && hasSelection) return null;  // copy
  if (key === "[") return "k:esc";
  if (key === " ") return "k:ctrl+space";
  return /^[a-z\]]$/.test(key) ? `k:ctrl+${key}` : null;  // others zoom or select tabs
}

/** Return the keys of a typed text; `isControl` applies the key bar's Ctrl to a single letter. */
export function keysOfText(text, isControl = false) {
  return isControl && /^[a-z]$/i.test(text) ? [`k:ctrl+${text.toLowerCase()}`] : [`t:${text}`];
}

/** Return the key of a button of the key bar; `isControl` applies Ctrl to arrow keys. */
export function keyOfBar(name, isControl = false) {
  return `k:${isControl && ["up", "down", "left", "right"].includes(name) ? "ctrl+" : ""}${name}`;
}
