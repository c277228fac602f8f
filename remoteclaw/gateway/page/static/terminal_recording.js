// A recording of a terminal while it is watched, as an asciicast (version 2), which asciinema plays.
// It has what the screen has shown: each frame becomes the sequences that draw it.

import { el } from "./dom.js";

/** The longest recording, in characters. */
const MAX_CHARS = 50_000_000;
const SHAPES = { block: 2, underline: 4, bar: 6 };
const CODES = { b: 1, d: 2, i: 3, ul: 4, v: 7, s: 9 };

/** Begin a recording of a screen with the state that it has; `add(state, rows)` adds a state after rows have changed. */
export function recording(state, title) {
  const began = performance.now();
  const header = { version: 2, width: state.cols, height: state.rows, timestamp: Math.round(Date.now() / 1000), title: title || "RemoteClaw", env: { TERM: "xterm-256color" } };
  const parts = [];
  let size = `${state.cols}x${state.rows}`, chars = 0;

  function add(now, rows) {
    if (chars > MAX_CHARS) return false;
    const room = `${now.cols}x${now.rows}`;
    if (room !== size) push("r", size = room);
    const drawn = [...rows].filter((row) => row < now.rows).sort((one, other) => one - other).map((row) => `\x1b[${row + 1};1H${rowText(now.lines[row])}\x1b[0m\x1b[K`);
    const { row, col, visible, shape } = now.cursor;
    push("o", `\x1b[?25l${drawn.join("")}\x1b[${row + 1};${col + 1}H\x1b[${SHAPES[shape] ?? 0} q${visible ? "\x1b[?25h" : ""}`);
    return true;
  }

  function push(kind, data) {
    const line = JSON.stringify([Math.round(performance.now() - began) / 1000, kind, data]);
    chars += line.length;
    parts.push(line);
  }

  /** Offer the recording for download. */
  function save() {
    const file = new Blob([[JSON.stringify(header), ...parts, ""].join("\n")], { type: "application/x-asciicast" });
    const address = URL.createObjectURL(file);
    el("a", { href: address, download: `${header.title.replace(/[^\w-]+/g, "-").slice(0, 60) || "terminal"}.cast` }).click();
    setTimeout(() => URL.revokeObjectURL(address), 10_000);
  }

  add(state, state.lines.keys());
  return { add, save };
}

/** Return the sequences that draw a row. The column is set again after characters that other terminals may draw with another width. */
function rowText(runs) {
  let column = 0, text = "";
  for (const [shown, style] of runs) {
    text += `\x1b[${sgr(style ?? {})}m`;
    const width = style?.w === 2 ? 2 : 1;
    for (const piece of style?.c ? [shown] : /^[ -~]*$/.test(shown) ? [shown] : Array.from(shown)) {
      const plain = piece.replace(/[\x00-\x1f\x7f-\x9f]/g, " ");
      column += style?.c ? width : width * Array.from(plain).length;
      text += /^[ -~]*$/.test(plain) ? plain : `${plain}\x1b[${column + 1}G`;
    }
  }
  return text;
}

function sgr(style) {
  const codes = [0, ...Object.entries(CODES).filter(([name]) => style[name]).map(([, code]) => code)];
  for (const [name, code] of [["fg", 38], ["bg", 48]]) {
    const colour = style[name];
    if (Number.isInteger(colour) && colour >= 0 && colour < 256) codes.push(code, 5, colour);
    else if (/^#[0-9a-f]{6}$/i.test(colour)) codes.push(code, 2, ...[1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16)));
  }
  return codes.join(";");
}
