// The screen of a terminal, as state: frames are applied in their order, and a gap is noticed.
// Nothing here is drawn. A frame is described in docs/terminals.md.

/** The most cells of a screen: what claims more is no screen. */
const MAX_COLS = 500, MAX_ROWS = 200;

export class ScreenState {
  revision = null;  // null: nothing is known yet, or something is missing
  cols = 0;
  rows = 0;
  lines = [];  // of each row its runs
  cursor = { row: 0, col: 0, visible: false, shape: "block" };
  title = "";
  modes = {};
  history = 0;

  /**
   * Apply a frame; return the rows that it changes, as a set. Null: it differs from a state that is
   * not known here, so that all is needed again.
   */
  take(frame) {
    const isWhole = frame.since === null;
    if (!isWhole && frame.revision <= this.revision) return new Set();  // told before
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

  /** Take the size of a frame; return the rows that are other ones for it. */
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

/** How many rows of what has left the screen are fetched at once. */
export const CHUNK = 500;

/** Return which rows to fetch next above those from `first` on; null: there are none. */
export function chunkAbove(first) {
  const start = Math.max(0, first - CHUNK);
  return first > 0 ? { start, count: first - start } : null;
}
