// The view of a terminal: its screen, and above it the scrollback.

import { button, el, problemLine, setMessage } from "./dom.js";
import { chunkAbove, ScreenState } from "./terminal_model.js";
import { drawRow, rowOf, selectedText, setMeasuringFont } from "./terminal_rows.js";

/** The font size for the user who types, and the smallest one for others. */
const OWN_PX = 14, MIN_PX = 7;
/** How close to the beginning of the scrollback counts as being there. */
const NEAR_PX = 40;
const MIN_SIZE = { cols: 20, rows: 5 }, MAX_SIZE = { cols: 500, rows: 200 };

/**
 * Return a view. `fetchRows(start, count)` resolves to rows of the scrollback, `field` is the input
 * field, placed at the cursor, and `onResize(size)` receives the size of the user who types.
 */
export function terminalView({ fetchRows, field, onResize }) {
  const state = new ScreenState();
  const cursor = el("div", { class: "tty-cursor", "aria-hidden": "true", hidden: true });
  const lines = el("div", { class: "tty-lines" });
  const screen = el("div", { class: "tty-screen", role: "document", "aria-label": "Screen" }, lines, cursor, field);
  const scrollback = el("div", { class: "tty-past" });
  const probe = el("span", { class: "tty-probe", "aria-hidden": "true", text: "0000000000" });
  const problem = problemLine();
  const scroller = el("div", { class: "tty-scroller", tabindex: "0", role: "region", "aria-label": "Terminal",
    onscroll: onScroll, onwheel: ({ deltaY }) => { if (deltaY < 0) scrollBack(); },
    ontouchstart: ({ touches }) => { touchedAt = touches[0].clientY; },
    ontouchmove: ({ touches }) => { if (touches[0].clientY - touchedAt > NEAR_PX) scrollBack(); },
    onkeydown: ({ key, target }) => { if (target === scroller && ["PageUp", "ArrowUp", "Home"].includes(key)) scrollBack(); } }, scrollback, screen, probe);
  const backButton = button("Back to now ↓", backToNow, { class: "tty-now", hidden: true });
  const element = el("div", { class: "tty-view" }, scroller, backButton, problem);
  const dirty = new Set();
  let isDrawn = true, isBack = false, isOwn = false, isFetching = false;
  let first = 0;  // the oldest row of the scrollback that is shown
  let touchedAt = 0;  // where a touch began
  let reported = "";  // the size that was reported last
  let timer = null;

  /** Apply a frame; return false after a gap. */
  function apply(frame) {
    const changed = state.apply(frame);
    if (!changed) return false;
    for (const row of changed) dirty.add(row);
    if (isDrawn) requestAnimationFrame(draw);
    isDrawn = false;
    return true;
  }

  function draw() {
    isDrawn = true;
    if (isBack) return;  // the visible scrollback must not move
    while (lines.children.length > state.rows) lines.lastChild.remove();
    while (lines.children.length < state.rows) lines.append(rowOf([]));
    for (const row of dirty) {
      if (row < state.rows) drawRow(lines.children[row], state.lines[row]);
    }
    dirty.clear();
    const { row, col, visible, shape } = state.cursor;
    cursor.hidden = !visible;
    cursor.className = `tty-cursor tty-${["bar", "underline"].includes(shape) ? shape : "block"}`;
    screen.style.setProperty("--row", row);
    screen.style.setProperty("--col", col);
    fit();
  }

  // -- sizes ----------------------------------------------------------------------------------------

  /** Set the font size; for users who watch, all columns and rows have to fit into the window. */
  function fit() {
    if (!scroller.clientWidth) return;  // the view is hidden
    const cell = cellOf(OWN_PX);
    const wide = (scroller.clientWidth - cell.around) / (cell.width * state.cols);
    const high = (scroller.clientHeight - cell.above) / (cell.height * state.rows);
    const px = isOwn || !state.cols ? OWN_PX : Math.min(OWN_PX, Math.max(MIN_PX, OWN_PX * Math.min(wide, high)));
    element.style.setProperty("--size", `${Math.floor(px * 10) / 10}px`);
  }

  /** Return the size of a cell and of the padding, in pixels. */
  function cellOf(px) {
    probe.style.setProperty("font-size", `${px}px`);
    const { width } = probe.getBoundingClientRect();
    const style = getComputedStyle(scroller);
    return { width: width / 10 || px * 0.6, height: px * 1.2, around: parseFloat(style.paddingLeft) + parseFloat(style.paddingRight),
      above: parseFloat(style.paddingTop) + parseFloat(style.paddingBottom) };
  }

  /** Return the columns and rows that fit into the window; null while the view is hidden. */
  function room() {
    if (!scroller.clientWidth || !scroller.clientHeight) return null;
    const { width, height, around, above } = cellOf(OWN_PX);
    const within = (name, value) => Math.min(MAX_SIZE[name], Math.max(MIN_SIZE[name], Math.floor(value)));
    return { cols: within("cols", (scroller.clientWidth - around) / width), rows: within("rows", (scroller.clientHeight - above) / height) };
  }

  new ResizeObserver(() => {
    fit();
    clearTimeout(timer);
    timer = setTimeout(reportSize, 100);
  }).observe(scroller);

  function reportSize() {
    const size = isOwn && room();
    if (!size || JSON.stringify(size) === reported) return;
    reported = JSON.stringify(size);
    onResize(size);
  }

  /** Set whether this window decides the terminal's size. */
  function setOwn(nowOwn) {
    isOwn = nowOwn;
    reported = nowOwn ? JSON.stringify(room()) : "";
    fit();
  }

  // -- the scrollback -------------------------------------------------------------------------------

  function onScroll() {
    if (isBack && scroller.scrollTop < NEAR_PX) loadOlder();
    else if (isBack && scroller.scrollTop + scroller.clientHeight > scroller.scrollHeight - 2 && scrollback.children.length) backToNow();
  }

  async function scrollBack() {
    if (isBack || !state.history || scroller.scrollTop > NEAR_PX) return;
    isBack = true;
    backButton.hidden = false;
    first = state.history;
    await loadOlder();
  }

  async function loadOlder() {
    const chunk = chunkAbove(first);
    if (!chunk || isFetching) return;
    isFetching = true;
    setMessage(problem, "");
    try {
      const { rows } = await fetchRows(chunk.start, chunk.count);
      if (!isBack) return;
      const distance = scroller.scrollHeight - scroller.scrollTop;
      scrollback.prepend(...rows.map(rowOf));
      first = chunk.start;
      scroller.scrollTop = scroller.scrollHeight - distance - NEAR_PX;
    } catch (error) {
      setMessage(problem, error.message);
    } finally {
      isFetching = false;
    }
  }

  function backToNow() {
    if (!isBack) return;
    isBack = false;
    backButton.hidden = true;
    setMessage(problem, "");
    scrollback.replaceChildren();
    draw();
    scroller.scrollTop = 0;
  }

  // -- the selection --------------------------------------------------------------------------------

  const selected = () => selectedText([...scrollback.children, ...lines.children].filter((row) => getSelection().containsNode(row, true)));

  scroller.addEventListener("copy", (event) => {
    if (event.target === field && field.value) return;
    const text = selected();
    if (!text) return;
    event.clipboardData.setData("text/plain", text);
    event.preventDefault();
  });

  /** Prepare to draw, once the view is in the document and the style sheet is loaded. */
  function prepare() {
    setMeasuringFont(scroller);
    fit();
  }

  return { element, scroller, state, apply, setOwn, room, prepare, backToNow, hasSelection: () => Boolean(selected()) };
}
