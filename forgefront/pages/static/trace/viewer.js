// Shows a trace: a box that scrolls, in which only the lines that are seen are elements, whatever the length of the trace.

import { h, replace } from "../dom.js";
import { duration } from "../parts.js";
import { inked, piecesOf } from "./ansi.js";
import { unmarked } from "./sections.js";

const OVERSCAN = 12;
/** Maximum height of the canvas in pixels, since browsers limit it; a longer trace scrolls by more than a line for each line height. */
const MAX_HEIGHT = 6_000_000;
const RANGE = /^#?L?(\d{1,9})(?:-L?(\d{1,9}))?$/;

/** Shows `text`, a TraceText, in `box`. `onMove()` is called after each drawing, when `atEnd` may have changed. */
export class TraceViewer {
  #text;
  #rows = new Map();
  #chosen = null;
  #wanted = null;
  #pattern = null;
  #match = -1;
  #first = 0;
  #set = null;
  #lineHeight = 20;
  #frame = 0;
  #onMove;
  following = true;

  constructor(text, onMove) {
    this.#text = text;
    this.#onMove = onMove;
    this.lines = h("div.output-lines");
    this.canvas = h("div.output-canvas", null, this.lines);
    this.box = h("div.output.trace", { tabindex: 0, role: "region", "aria-label": "Output", onscroll: () => this.#scrolled(), onclick: (event) => this.#click(event), onkeydown: (event) => this.#press(event) }, this.canvas);
    this.box.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
    new ResizeObserver(() => this.refresh()).observe(this.box);
  }

  /** Shows another trace. */
  replaceText(text) {
    this.#text = text;
    this.#first = 0;
    this.clear();
  }

  /** Makes all rows again. */
  clear() {
    this.#rows.clear();
    this.refresh();
  }

  /** Shows what has changed, with the next frame. */
  refresh() {
    this.#frame ||= requestAnimationFrame(() => {
      this.#frame = 0;
      this.#draw();
    });
  }

  get #count() {
    return this.#text.sections.shown(this.#text.lineCount);
  }

  get #seen() {
    return this.box.clientHeight / this.#lineHeight;
  }

  get #last() {
    return Math.max(0, this.#count - this.#seen);
  }

  get #isScaled() {
    return this.#count * this.#lineHeight > MAX_HEIGHT;
  }

  get atEnd() {
    return this.#first >= this.#last - 1.5;
  }

  #draw() {
    if (!this.box.isConnected) return;
    const height = Math.min(this.#count * this.#lineHeight, MAX_HEIGHT);
    this.canvas.style.setProperty("height", `${height}px`);
    if (this.#wanted && this.#wanted.from <= this.#text.lineCount) this.#reach();
    this.#move(this.following ? this.#last : this.#first);
    const start = Math.max(0, Math.floor(this.#first) - OVERSCAN);
    const end = Math.min(this.#count, Math.ceil(this.#first + this.#seen) + OVERSCAN);
    const kept = new Map();
    const missing = [];
    for (let place = start; place < end; place++) {
      const number = this.#text.sections.lineAt(place);
      let row = this.#rows.get(number);
      // The last line may have grown.
      if (!row || row.isMissing || number >= this.#text.lineCount - 2) {
        const line = this.#text.line(number);
        if (line instanceof Promise) missing.push(line);
        const made = this.#row(number, line instanceof Promise ? null : line);
        made.isMissing = line instanceof Promise;
        if (row?.isEqualNode(made)) row.isMissing = made.isMissing;
        else row = made;
      }
      kept.set(number, row);
    }
    this.#rows = kept;
    this.#arrange([...kept.values()]);
    this.lines.style.setProperty("top", `${this.box.scrollTop - (this.#first - start) * this.#lineHeight}px`);
    const measured = this.lines.firstElementChild?.getBoundingClientRect().height;
    if (measured > 1 && Math.abs(measured - this.#lineHeight) > 0.01) {
      this.#lineHeight = measured;
      this.refresh();
    }
    Promise.all(missing).then(() => missing.length && this.refresh(), () => {});
    this.#onMove();
  }

  /** Puts rows into the box without moving those that are there already, so that the focus and a selection stay. */
  #arrange(rows) {
    const staying = new Set(rows);
    for (const each of [...this.lines.children]) if (!staying.has(each)) each.remove();
    let at = this.lines.firstElementChild;
    for (const row of rows) {
      if (row === at) at = at.nextElementSibling;
      else this.lines.insertBefore(row, at);
    }
  }

  #row(number, line) {
    const section = this.#text.sections.byLine.get(number);
    const isFold = section && section.to > section.line;
    const chosen = this.#chosen && number + 1 >= this.#chosen.from && number + 1 <= this.#chosen.to;
    return h(`div.output-line${chosen ? ".chosen" : ""}${section ? ".output-section" : ""}`, null,
      h("a.number", { href: `#L${number + 1}`, "data-number": number + 1, tabindex: -1, "aria-label": `Line ${number + 1}` }),
      isFold ? h("button.fold", { type: "button", "data-line": number, "aria-expanded": String(!section.folded), "aria-label": `Section ${section.name}` }) : null,
      h("span.text", null, line ? this.#marked(piecesOf(unmarked(line.text), line.style), number) : "…"),
      isFold && section.seconds !== null ? h("span.section-time", null, duration(section.seconds)) : null, "\n");
  }

  /** The elements of a line, with what is searched for marked. */
  #marked(pieces, number) {
    if (!this.#pattern) return pieces.map(inked);
    const found = [...pieces.map(([text]) => text).join("").matchAll(this.#pattern)].filter((match) => match[0]);
    if (!found.length) return pieces.map(inked);
    const elements = [];
    let offset = 0;
    for (const [text, style] of pieces) {
      let from = 0;
      for (const { index, 0: match } of found) {
        const [start, end] = [Math.max(index - offset, from), Math.min(index - offset + match.length, text.length)];
        if (start >= end) continue;
        elements.push(inked([text.slice(from, start), style]), h("mark", { "data-current": String(number === this.#match) }, text.slice(start, end)));
        from = end;
      }
      if (from < text.length) elements.push(inked([text.slice(from), style]));
      offset += text.length;
    }
    return elements;
  }

  /** Marks what matches, and the line of the current match. */
  mark(pattern, number = -1) {
    this.#pattern = pattern;
    this.#match = number;
    this.clear();
  }

  /** Shows a line, counted from 0, in the middle of the box, unfolding its section. */
  showLine(number) {
    this.following = false;
    this.#text.sections.reveal(number);
    this.#first = Math.max(0, this.#text.sections.placeOf(number) - this.#seen / 2);
    this.clear();
  }

  /** Marks the lines of an address such as "#L10" or "#L10-20" and scrolls to them, when they are there. Returns whether it names lines. */
  goTo(hash) {
    const [, from, to] = RANGE.exec(hash.trim()) ?? [];
    if (!from || Number(from) < 1) return false;
    const [start, end] = [Number(from), Number(to ?? from)].sort((one, other) => one - other);
    this.#wanted = { from: start };
    this.#choose(start, end);
    return true;
  }

  #choose(from, to) {
    this.#chosen = { from, to };
    this.following = false;
    this.clear();
  }

  #reach() {
    const { from } = this.#wanted;
    this.#wanted = null;
    this.#text.sections.reveal(from - 1);
    this.#rows.clear();
    this.#first = Math.max(0, this.#text.sections.placeOf(from - 1) - this.#seen / 2);
    this.canvas.style.setProperty("height", `${Math.min(this.#count * this.#lineHeight, MAX_HEIGHT)}px`);
  }

  toStart() {
    this.following = false;
    this.#first = 0;
    this.refresh();
  }

  toEnd() {
    this.following = true;
    this.refresh();
  }

  /** Folds or unfolds all sections. */
  foldAll(folded) {
    for (const section of this.#text.sections.all) section.folded = folded;
    this.#text.sections.fold();
    this.following = false;
    this.#first = 0;
    this.clear();
  }

  // Scrolling. `#first` is the first place that is seen, with a fraction; where the trace is longer than an element may be, it is not
  // the position of the box times a constant.

  #move(first) {
    this.#first = Math.min(Math.max(0, first), this.#last);
    const top = this.#isScaled ? (this.#first / (this.#last || 1)) * (this.box.scrollHeight - this.box.clientHeight) : this.#first * this.#lineHeight;
    if (Math.abs(this.box.scrollTop - top) < 0.5) return;
    this.box.scrollTop = top;
    this.#set = this.box.scrollTop;
  }

  #scrolled() {
    const top = this.box.scrollTop;
    if (this.#set !== null && Math.abs(top - this.#set) < 1) return;
    this.#set = null;
    this.#first = this.#isScaled ? (top / Math.max(1, this.box.scrollHeight - this.box.clientHeight)) * this.#last : top / this.#lineHeight;
    this.following = this.atEnd;
    this.refresh();
  }

  #by(lines) {
    this.#first += lines;
    this.following = this.atEnd;
    this.refresh();
  }

  #wheel(event) {
    if (!this.#isScaled || event.ctrlKey || !event.deltaY) return;
    event.preventDefault();
    this.#by(event.deltaY / (event.deltaMode === 1 ? 1 : this.#lineHeight));
  }

  #press(event) {
    if (event.target !== this.box || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "End") this.toEnd();
    else if (event.key === "Home") this.toStart();
    else {
      const page = Math.max(1, Math.floor(this.#seen) - 1);
      const lines = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page }[event.key];
      if (!lines || !this.#isScaled) return;
      this.#by(lines);
    }
    event.preventDefault();
  }

  /** A click on a number marks its line, with Shift all lines from the marked one; one on a heading folds its section. */
  #click(event) {
    const fold = event.target.closest(".fold");
    const number = Number(event.target.closest(".number")?.dataset.number);
    if (fold) {
      const section = this.#text.sections.byLine.get(Number(fold.dataset.line));
      section.folded = !section.folded;
      this.#text.sections.fold();
      fold.setAttribute("aria-expanded", String(!section.folded));
      this.following = false;
      this.refresh();
    } else if (number && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      const [from, to] = [event.shiftKey && this.#chosen ? this.#chosen.from : number, number].sort((one, other) => one - other);
      history.replaceState(history.state, "", from === to ? `#L${from}` : `#L${from}-${to}`);
      this.#choose(from, to);
    }
  }
}

/** Buttons that fold and unfold all sections; nothing where there are none. */
export const foldButtons = (element, viewer, text) => {
  const show = text.sections.all.length > 0;
  if (show === element.childElementCount > 0) return;
  replace(element, show ? [
    h("button.quiet-button", { type: "button", onclick: () => viewer.foldAll(true) }, "Fold all"),
    h("button.quiet-button", { type: "button", onclick: () => viewer.foldAll(false) }, "Unfold all"),
  ] : null);
};
