// What is seen of a terminal: its screen, drawn as it changes, and above it what has left the screen.

import { button, el, problemLine, say } from "./dom.js";
import { chunkAbove, ScreenState } from "./terminal_model.js";
import { drawRow, measuredIn, rowOf, selectedText } from "./terminal_rows.js";

/** The size of letters for who types, and the least of who watches, in pixels. */
const OWN_PX = 14, LEAST_PX = 7;
const NEAR_PX = 40;
const FEWEST = { cols: 20, rows: 5 }, MOST = { cols: 500, rows: 200 };

/** Return a view; `fetchRows(start, count)` resolves to rows that have left the screen, `field` takes keys at the cursor. */
export function terminalView({ fetchRows, field, sized }) {
  const state = new ScreenState();
  const cursor = el("div", { class: "tty-cursor", "aria-hidden": "true", hidden: true });
  const lines = el("div", { class: "tty-lines" });
  const screen = el("div", { class: "tty-screen", role: "document", "aria-label": "Screen" }, lines, cursor, field);
  const past = el("div", { class: "tty-past" });
  const probe = el("span", { class: "tty-probe", "aria-hidden": "true", text: "0000000000" });
  const problem = problemLine();
  const scroller = el("div", { class: "tty-scroller", tabindex: "0", role: "region", "aria-label": "Terminal",
    onscroll: scrolled, onwheel: ({ deltaY }) => { if (deltaY < 0) lookBack(); },
    ontouchstart: ({ touches }) => { touchedAt = touches[0].clientY; },
    ontouchmove: ({ touches }) => { if (touches[0].clientY - touchedAt > NEAR_PX) lookBack(); },
    onkeydown: ({ key, target }) => { if (target === scroller && ["PageUp", "ArrowUp", "Home"].includes(key)) lookBack(); } }, past, screen, probe);
  const now = button("Back to now ↓", backToNow, { class: "tty-now", hidden: true });
  const element = el("div", { class: "tty-view" }, scroller, now, problem);
  const dirty = new Set();
  let isDrawn = true, isBack = false, isOwn = false, isFetching = false;
  let first = 0;  // the oldest row that is shown of what has left the screen
  let touchedAt = 0;  // where a finger was put down
  let told = "";  // the size that was told last
  let timer = null;

  /** Take a frame; return whether it fits what is known. */
  function take(frame) {
    const changed = state.take(frame);
    if (!changed) return false;
    for (const row of changed) dirty.add(row);
    if (isDrawn) requestAnimationFrame(draw);
    isDrawn = false;
    return true;
  }

  function draw() {
    isDrawn = true;
    if (isBack) return;  // what a person reads stays as it is
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

  /** Have the letters be of the size at which all columns have room, where another one's window decides. */
  function fit() {
    if (!scroller.clientWidth) return;  // it is not shown
    const cell = cellOf(OWN_PX);
    const wide = (scroller.clientWidth - cell.around) / (cell.width * state.cols);
    const high = (scroller.clientHeight - cell.above) / (cell.height * state.rows);
    const px = isOwn || !state.cols ? OWN_PX : Math.min(OWN_PX, Math.max(LEAST_PX, OWN_PX * Math.min(wide, high)));
    element.style.setProperty("--size", `${Math.floor(px * 10) / 10}px`);
  }

  /** Return what one cell takes, in pixels, and what is around all of them. */
  function cellOf(px) {
    probe.style.setProperty("font-size", `${px}px`);
    const { width } = probe.getBoundingClientRect();
    const style = getComputedStyle(scroller);
    return { width: width / 10 || px * 0.6, height: px * 1.2, around: parseFloat(style.paddingLeft) + parseFloat(style.paddingRight),
      above: parseFloat(style.paddingTop) + parseFloat(style.paddingBottom) };
  }

  /** Return the columns and rows for which there is room here; null while it isn't shown. */
  function room() {
    if (!scroller.clientWidth || !scroller.clientHeight) return null;
    const { width, height, around, above } = cellOf(OWN_PX);
    const within = (name, value) => Math.min(MOST[name], Math.max(FEWEST[name], Math.floor(value)));
    return { cols: within("cols", (scroller.clientWidth - around) / width), rows: within("rows", (scroller.clientHeight - above) / height) };
  }

  new ResizeObserver(() => {
    fit();
    clearTimeout(timer);
    timer = setTimeout(tell, 100);
  }).observe(scroller);

  function tell() {
    const size = isOwn && room();
    if (!size || JSON.stringify(size) === told) return;
    told = JSON.stringify(size);
    sized(size);
  }

  /** Take whether this window's size is the terminal's. */
  function own(isOurs) {
    isOwn = isOurs;
    told = isOurs ? JSON.stringify(room()) : "";
    fit();
  }

  // -- what has left the screen ---------------------------------------------------------------------

  function scrolled() {
    if (isBack && scroller.scrollTop < NEAR_PX) bringOlder();
    else if (isBack && scroller.scrollTop + scroller.clientHeight > scroller.scrollHeight - 2 && past.children.length) backToNow();
  }

  async function lookBack() {
    if (isBack || !state.history || scroller.scrollTop > NEAR_PX) return;
    isBack = true;
    now.hidden = false;
    first = state.history;
    await bringOlder();
  }

  async function bringOlder() {
    const chunk = chunkAbove(first);
    if (!chunk || isFetching) return;
    isFetching = true;
    say(problem, "");
    try {
      const { rows } = await fetchRows(chunk.start, chunk.count);
      if (!isBack) return;
      const left = scroller.scrollHeight - scroller.scrollTop;
      past.prepend(...rows.map(rowOf));
      first = chunk.start;
      scroller.scrollTop = scroller.scrollHeight - left - NEAR_PX;
    } catch (error) {
      say(problem, error.message);
    } finally {
      isFetching = false;
    }
  }

  function backToNow() {
    if (!isBack) return;
    isBack = false;
    now.hidden = true;
    say(problem, "");
    past.replaceChildren();
    draw();
    scroller.scrollTop = 0;
  }

  // -- what is selected -----------------------------------------------------------------------------

  const selected = () => selectedText([...past.children, ...lines.children].filter((row) => getSelection().containsNode(row, true)));

  scroller.addEventListener("copy", (event) => {
    if (event.target === field && field.value) return;
    const text = selected();
    if (!text) return;
    event.clipboardData.setData("text/plain", text);
    event.preventDefault();
  });

  /** Make ready to draw, once it is in the document and its styles are there. */
  function shown() {
    measuredIn(scroller);
    fit();
  }

  return { element, scroller, state, take, own, room, shown, backToNow, hasSelection: () => Boolean(selected()) };
}
