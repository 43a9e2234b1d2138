// Sections of a trace, between `section_start:TIME:NAME` and `section_end:TIME:NAME` (each followed by CR, ESC [0K), and which lines
// are shown when some of them are folded.

// eslint-disable-next-line no-control-regex
const MARKER = /section_(start|end):(\d{1,12}):([\w.:-]{1,200}?)(?:\[([^\]\r]{0,500})\])?(?:\r(?:\x1b\[0?K)?|\x1b\[0?K)/g;
/** Maximum number of sections; further ones are shown as lines. */
const MAX_SECTIONS = 5000;

/** A line without its markers. */
export const unmarked = (line) => (line.includes("section_") ? line.replace(MARKER, "") : line);

/**
 * The sections of a trace. A section is `{name, line, to, since, seconds, folded}`: its heading is on `line`, its last line is `to`, which is
 * Infinity while it is open, and it began at the timestamp `since`. Lines are counted from 0.
 */
export class Sections {
  #open = [];
  #folded = [];
  all = [];
  byLine = new Map();

  /** Reads the markers of a line. Returns whether a section has begun or ended. */
  read(line, number) {
    if (!line.includes("section_")) return false;
    const before = this.all.length;
    let ended = false;
    const isEmpty = !unmarked(line).replace(/\x1b\[[0-9;]*[A-Za-z]|\s/g, "");
    for (const [, kind, time, name, options] of line.matchAll(MARKER)) {
      if (kind === "start") {
        if (this.all.length >= MAX_SECTIONS || this.byLine.has(number)) continue;
        const section = { name, line: number, to: Infinity, since: Number(time), seconds: null, folded: /(?:^|,)\s*collapsed=true\s*(?:,|$)/.test(options ?? "") };
        this.all.push(section);
        this.byLine.set(number, section);
        this.#open.push(section);
      } else {
        const at = this.#open.findLastIndex((each) => each.name === name);
        if (at < 0) continue;
        const [ending, ...inner] = this.#open.splice(at);
        ending.seconds = Math.max(0, Number(time) - ending.since);
        for (const section of [ending, ...inner]) section.to = isEmpty ? number : number - 1;
        ended = true;
      }
    }
    if (ended || this.all.length !== before) this.fold();
    return ended || this.all.length !== before;
  }

  /** Computes which lines are folded. Call it when `folded` of a section has changed. */
  fold() {
    this.#folded = [];
    for (const { line, to, folded } of this.all) {
      const last = this.#folded.at(-1);
      if (!folded || to <= line || (last && line <= last.to)) continue;
      this.#folded.push({ from: line + 1, to });
    }
  }

  /** Unfolds what contains a line. */
  reveal(number) {
    for (const section of this.all) if (section.folded && section.line < number && number <= section.to) section.folded = false;
    this.fold();
  }

  /** How many of `count` lines are shown. */
  shown(count) {
    let hidden = 0;
    for (const { from, to } of this.#folded) if (from < count) hidden += Math.min(to, count - 1) - from + 1;
    return count - hidden;
  }

  /** The line that is shown at a place, the number of shown lines before it. */
  lineAt(place) {
    for (const { from, to } of this.#folded) {
      if (place < from) break;
      place += to - from + 1;
    }
    return place;
  }

  /** The place at which a line is shown; that of the heading for a folded line. */
  placeOf(number) {
    let hidden = 0;
    for (const { from, to } of this.#folded) {
      if (number < from) break;
      if (number <= to) return from - 1 - hidden;
      hidden += to - from + 1;
    }
    return number - hidden;
  }
}
