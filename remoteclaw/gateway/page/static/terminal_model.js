// The state of a terminal's screen: applies frames in order, and detects gaps. It draws nothing.
// docs/terminals.md describes frames.

/** The largest screen; a larger one in a frame is cut. */
const MAX_COLS = 500, MAX_ROWS = 200;

export class ScreenState {
  revision = null;  // null before the first frame, and after a gap
  cols = 0;
  rows = 0;
  lines = [];  // the runs of each row
  cursor = { row: 0, col: 0, visible: false, shape: "block" };
  title = "";
  modes = {};
  history = 0;

  /**
   * Apply a frame; return the set of the rows that it changes. Null after a gap: the frame refers to
   * a state that is not known here, so that a full frame is needed.
   */
  apply(frame) {
    const isWhole = frame.since === null;
    if (!isWhole && frame.revision <= this.revision) return new Set();  // applied already
    if (!isWhole && frame.since !== this.revision) {
      this.revision = null;
      return null;
    }
    const changed = this.#size(frame, isWhole);
    for (const [name, runs] of Object.entries(frame.lines ?? {})) {
      const row = Number(name);
      if (!(row >= 0 && row < this.rows)) continue;
      this.lines[row] = runs;
      changed.add(row);
    }
    this.revision = frame.revision;
    for (const name of ["cursor", "title", "modes", "history"]) this[name] = frame[name] ?? this[name];
    return changed;
  }

  /** Apply the size of a frame; return the set of the rows that are new. */
  #size(frame, isWhole) {
    const before = this.rows;
    this.cols = Math.min(frame.cols ?? this.cols, MAX_COLS);
    this.rows = Math.min(frame.rows ?? this.rows, MAX_ROWS);
    if (isWhole) this.lines = [];
    this.lines.length = this.rows;
    const changed = new Set();
    for (let row = isWhole ? 0 : before; row < this.rows; row += 1) changed.add(row);
    for (const row of changed) this.lines[row] = [];
    return changed;
  }

  /** Return the text of the screen. */
  get text() {
    return this.lines.map(textOf).join("\n");
  }
}

/** Return the text of a row. */
export function textOf(runs) {
  return runs.map(([text]) => text).join("").trimEnd();
}

/** How many rows of the scrollback are fetched at once. */
export const CHUNK = 500;

/** Return the rows to fetch next, above the row `first`; null if there are none. */
export function chunkAbove(first) {
  const start = Math.max(0, first - CHUNK);
  return first > 0 ? { start, count: first - start } : null;
}
