// The view of a terminal: its screen, above it the scrollback, and the search in both.

import { button, el, problemLine, setMessage } from "./dom.js";
import { icon } from "./icons.js";
import { chunkAbove, ScreenState } from "./terminal_model.js";
import { drawRow, rowOf, selectedText, setMeasuringFont } from "./terminal_rows.js";
import { terminalSearch } from "./terminal_search.js";

/** The font size for the user who types, on a wide and on a narrow screen, and the smallest one for others: then the screen pans. */
const WIDE_PX = 14, NARROW_PX = 12, MIN_PX = 11, NARROW = 520;
/** How close to the beginning of the scrollback counts as being there. */
const NEAR_PX = 40;
const MIN_SIZE = { cols: 20, rows: 5 }, MAX_SIZE = { cols: 500, rows: 200 };

/**
 * Return a view. `fetchRows(start, count)` resolves to rows of the scrollback, and `find(text)` to a result of
 * `terminals.search`; without them there is only the screen. `field` is the input field, placed at the cursor, and
 * `onResize(size)` receives the size of the user who types.
 */
export function terminalView({ fetchRows, find, field, onResize }) {
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
  const backButton = button([icon("down"), "Back to now"], backToNow, { class: "tty-now", hidden: true });
  const search = find && terminalSearch({ find, show: showRow, rows: shownRows, onClose: () => { backToNow(); focusBack(); } });
  const element = el("div", { class: "tty-view" }, scroller, backButton, search?.element, problem);
  const dirty = new Set();
  let isDrawn = true, isBack = false, isOwn = false, isFetching = false;
  let first = 0, total = 0;  // the oldest row of the scrollback that is shown, and the number of its rows when it was opened
  let touchedAt = 0;  // where a touch began
  let isPlaced = false;  // whether a screen that is larger than the window was panned to its cursor
  let reported = "";  // the size that was reported last
  let timer = null;
  let focusBack = () => scroller.focus({ preventScroll: true });

  /** Apply a frame; return the set of the rows that it changes, null after a gap. */
  function apply(frame) {
    const changed = state.apply(frame);
    if (!changed) return null;
    for (const row of changed) dirty.add(row);
    if (isDrawn) requestAnimationFrame(draw);
    isDrawn = false;
    return changed;
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
    panToCursor();
  }

  /** Pan a screen that is larger than the window: at first to the cursor, and for the user who types with it. */
  function panToCursor() {
    if (!state.rows || !scroller.clientHeight || (isPlaced && !isOwn)) return;
    isPlaced = true;
    const { height, width } = cellOf(parseFloat(getComputedStyle(scroller).fontSize));
    const below = (state.cursor.row + 2) * height - scroller.clientHeight, right = (state.cursor.col + 2) * width - scroller.clientWidth;
    if (scroller.scrollTop < below) scroller.scrollTop = below;
    if (isOwn && scroller.scrollLeft < right) scroller.scrollLeft = right;
  }

  // -- sizes ----------------------------------------------------------------------------------------

  const ownPx = () => (scroller.clientWidth < NARROW ? NARROW_PX : WIDE_PX);

  /** Set the font size; for users who watch, all columns and rows fit into the window unless the letters would be too small. */
  function fit() {
    if (!scroller.clientWidth) return;  // the view is hidden
    const most = ownPx(), cell = cellOf(most);
    const wide = (scroller.clientWidth - cell.around) / (cell.width * state.cols);
    const high = (scroller.clientHeight - cell.above) / (cell.height * state.rows);
    const px = isOwn || !state.cols ? most : Math.min(WIDE_PX, Math.max(MIN_PX, most * Math.min(wide, high)));
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
    const { width, height, around, above } = cellOf(ownPx());
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
    else if (isBack && !search?.isOpen() && scroller.scrollTop + scroller.clientHeight > scroller.scrollHeight - 2 && scrollback.children.length) backToNow();
  }

  async function scrollBack() {
    if (isBack || !fetchRows || !state.history || scroller.scrollTop > NEAR_PX) return;
    freeze(state.history);
    await loadOlder();
  }

  /** Stop drawing, so that rows of the scrollback can be shown; `rows` is the number of its rows. */
  function freeze(rows) {
    isBack = true;
    backButton.hidden = false;
    first = total = rows;
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
      search?.mark();
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
    scroller.scrollTop = scroller.scrollLeft = 0;
    isPlaced = false;
    panToCursor();
  }

  // -- the search -----------------------------------------------------------------------------------

  /** Return the element of each row that is shown, by its number: 0 is the oldest row that is kept. */
  function shownRows() {
    const start = isBack ? first : state.history;
    return new Map([...scrollback.children, ...lines.children].map((row, index) => [start + index, row]));
  }

  /** Show a row by its number in a scrollback of `rows` rows. */
  async function showRow(row, rows) {
    if (rows !== undefined && (!isBack || rows !== total)) {
      backToNow();
      freeze(rows);
    }
    while (isBack && row < first) {
      const before = first;
      await loadOlder();
      if (first === before) return null;
    }
    const shown = shownRows().get(row);
    if (shown) scroller.scrollTop += shown.getBoundingClientRect().top - scroller.getBoundingClientRect().top - scroller.clientHeight / 2;
    return shown;
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
    isPlaced = false;
    panToCursor();
  }

  return { element, scroller, state, apply, setOwn, room, prepare, backToNow, hasSelection: () => Boolean(selected()),
    search: (from) => { focusBack = from ?? focusBack; search?.open(); } };
}
