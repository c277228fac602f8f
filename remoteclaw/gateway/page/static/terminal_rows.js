// Draws the rows of a terminal's screen as text nodes and classes only, whatever a program prints.

import { el } from "./dom.js";

const COLOUR = /^#[0-9a-f]{6}$/i;
/** The intensities of the 6 × 6 × 6 cube of the 256 colours. */
const LEVELS = [0, 95, 135, 175, 215, 255];
const pen = document.createElement("canvas").getContext("2d");
const widths = new Map();  // by character outside of ASCII: whether its glyph is one cell wide
let font = "";

/** Measure characters in the font of an element. */
export function setMeasuringFont(element) {
  const { fontFamily } = getComputedStyle(element);
  if (font !== fontFamily) widths.clear();
  font = fontFamily;
  pen.font = `100px ${fontFamily}`;
}

/** Replace the content of a row. */
export function drawRow(element, runs) {
  element.replaceChildren(...runs.flatMap(([text, style]) => pieces(String(text), style ?? {})));
}

/** Return the element of a row. */
export function rowOf(runs) {
  const made = el("div", { class: "tty-row" });
  drawRow(made, runs);
  return made;
}

function pieces(text, style) {
  const characters = style.c ? [text] : Array.from(text);  // a cluster of code points is one character
  const cells = style.w === 2 ? boxed(characters, "wide") : style.c ? boxed(characters, "narrow") : fitToCells(text, characters);
  const classes = classesOf(style);
  const [fore, back] = coloursOf(style);
  for (const [colour, kind] of [[fore, "fg"], [back, "bg"]]) {
    if (Number.isInteger(colour) && colour < 16 && colour >= 0) classes.push(`${kind}${colour}`);
    else if (typeof colour === "string" && !COLOUR.test(colour)) classes.push(`${kind}-${colour === "ink" ? "ink" : "paper"}`);
  }
  const address = addressOf(style.l);
  const rgb = [rgbOf(fore), rgbOf(back)];
  if (!classes.length && !address && !rgb.some(Boolean)) return cells;
  const made = address
    ? el("a", { class: classes.join(" "), href: address, target: "_blank", rel: "noopener noreferrer" }, cells)
    : el("span", { class: classes.join(" ") }, cells);
  if (rgb[0]) made.style.color = rgb[0];
  if (rgb[1]) made.style.backgroundColor = rgb[1];
  return [made];
}

function classesOf(style) {
  const classes = ["b", "d", "i", "s"].filter((name) => style[name]).map((name) => `tty-${name}`);
  if (style.ul >= 1 && style.ul <= 5) classes.push("tty-u", `tty-u${Math.trunc(style.ul)}`);
  return classes;
}

/** Return the colours of text and background, exchanged for inverse cells. */
function coloursOf({ fg, bg, v }) {
  return v ? [bg ?? "paper", fg ?? "ink"] : [fg, bg];
}

/** Return the CSS of a colour that has no class, else null. */
function rgbOf(colour) {
  if (typeof colour === "string") return COLOUR.test(colour) ? colour : null;
  if (!Number.isInteger(colour) || colour < 16 || colour > 255) return null;
  if (colour >= 232) return `rgb(${Array(3).fill(8 + 10 * (colour - 232)).join(" ")})`;
  const cube = colour - 16;
  return `rgb(${[Math.trunc(cube / 36), Math.trunc(cube / 6) % 6, cube % 6].map((level) => LEVELS[level]).join(" ")})`;
}

/** Return the address of an http(s) link, else null. */
function addressOf(link) {
  const url = typeof link === "string" && URL.canParse(link) ? new URL(link) : null;
  return url && ["http:", "https:"].includes(url.protocol) ? url.href : null;
}

/** Return a text of narrow cells, in which a character with a wider or narrower glyph is in a box of one cell. */
function fitToCells(text, characters) {
  if (/^[\x20-\x7e]*$/.test(text)) return [text];
  const made = [];
  for (const each of characters) {
    if (!fits(each)) made.push(...boxed([each], "narrow"));
    else if (typeof made.at(-1) === "string") made.push(made.pop() + each);
    else made.push(each);
  }
  return made;
}

function fits(character) {
  if (character >= " " && character <= "~") return true;
  if (!widths.has(character)) {
    if (widths.size > 5000) widths.clear();
    widths.set(character, Math.abs(pen.measureText(character).width - pen.measureText("0").width) < 1);
  }
  return widths.get(character);
}

function boxed(characters, width) {
  return characters.map((text) => el("span", { class: `tty-${width}`, text }));
}

/** Return the selected text of rows, one line each, without trailing blanks. */
export function selectedText(rows, selection = getSelection()) {
  if (!selection.rangeCount || selection.isCollapsed) return "";
  const range = selection.getRangeAt(0);
  return rows.filter((row) => range.intersectsNode(row)).map((row) => {
    const part = document.createRange();
    part.selectNodeContents(row);
    if (row.contains(range.startContainer)) part.setStart(range.startContainer, range.startOffset);
    if (row.contains(range.endContainer)) part.setEnd(range.endContainer, range.endOffset);
    return part.toString().trimEnd();
  }).join("\n");
}
