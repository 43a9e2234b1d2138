// The text of a trace in bounded memory of the heap: complete blocks of lines are compressed and stored as blobs, and only the most
// recently shown blocks are stored as text too.

import { styleAfter } from "./ansi.js";
import { Sections } from "./sections.js";

const BLOCK_CHARACTERS = 128 * 1024;
const MAX_DECODED = 12;
/** Maximum characters of a line; the rest of a longer one is not shown. */
const MAX_LINE = 10_000;
const FORMAT = "deflate-raw";

export class TraceText {
  #blocks = [];
  /** The blocks with decoded text, the most recently used one at the end. */
  #decoded = new Set();
  #open = newBlock(0, undefined);
  /** The last line, which has no end yet. */
  #rest = "";
  #isCut = false;
  characters = 0;
  sections = new Sections();

  /** Lines that are complete, and the one that has begun. */
  get lineCount() {
    return this.#open.first + this.#open.lines.length + (this.#rest ? 1 : 0);
  }

  append(text) {
    this.characters += text.length;
    let from = 0;
    for (let at = text.indexOf("\n"); at >= 0; at = text.indexOf("\n", from)) {
      this.#extend(text.slice(from, at));
      this.#endLine();
      from = at + 1;
    }
    this.#extend(text.slice(from));
  }

  /** Adds to the last line, of which MAX_LINE characters are stored. Text that a carriage return overwrites is dropped first. */
  #extend(text) {
    if (!text) return;
    this.#rest += text;
    if (this.#rest.length <= MAX_LINE) return;
    const last = this.#rest.replace(/\r+$/, "").lastIndexOf("\r");
    if (last > 0) [this.#rest, this.#isCut] = [this.#rest.slice(last + 1), false];
    if (this.#rest.length > MAX_LINE) [this.#rest, this.#isCut] = [this.#rest.slice(0, MAX_LINE), true];
  }

  #endLine() {
    const block = this.#open;
    const line = this.#isCut ? `${this.#rest}…` : this.#rest;
    this.sections.read(line, block.first + block.lines.length);
    block.lines.push(line);
    block.size += line.length + 1;
    [this.#rest, this.#isCut] = ["", false];
    if (block.size >= BLOCK_CHARACTERS) this.#close(block);
  }

  #close(block) {
    block.count = block.lines.length;
    this.#blocks.push(block);
    let style = block.style;
    for (const line of block.lines) style = styleAfter(line, style);
    this.#open = newBlock(block.first + block.count, style);
    compress(block.lines.join("\n")).then((blob) => {
      block.blob = blob;
      this.#use(block);
    });
  }

  /** Marks a block as used, and drops the text of the least recently used ones above MAX_DECODED. */
  #use(block) {
    this.#decoded.delete(block);
    this.#decoded.add(block);
    for (const each of this.#decoded) {
      if (this.#decoded.size <= MAX_DECODED) break;
      this.#decoded.delete(each);
      each.lines = each.styles = null;
    }
  }

  #blockOf(number) {
    if (number >= this.#open.first) return this.#open;
    let [low, high] = [0, this.#blocks.length - 1];
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.#blocks[middle].first <= number) low = middle;
      else high = middle - 1;
    }
    return this.#blocks[low];
  }

  /** `{text, style}` of a line, or a promise that is fulfilled when its block has been decoded. */
  line(number) {
    const block = this.#blockOf(number);
    if (!block.lines) return this.#load(block);
    if (block.blob) this.#use(block);
    const index = number - block.first;
    if (index >= block.lines.length) return { text: this.#rest, style: styleBefore(block, block.lines.length) };
    return { text: block.lines[index], style: styleBefore(block, index) };
  }

  #load(block) {
    block.loading ??= decompress(block.blob).then((text) => {
      block.lines = text.split("\n");
      block.loading = null;
      this.#use(block);
    });
    return block.loading;
  }

  /** Yields `[number of the first line, text]` of each block, from the first one on, without keeping them. */
  async *texts() {
    for (let index = 0; index < this.#blocks.length; index++) {
      const block = this.#blocks[index];
      yield [block.first, block.lines ? block.lines.join("\n") : await decompress(block.blob)];
    }
    yield [this.#open.first, [...this.#open.lines, this.#rest].join("\n")];
  }
}

const newBlock = (first, style) => ({ first, style, lines: [], styles: null, size: 0, count: 0, blob: null, loading: null });

/** The style with which a line of a block begins, computed once for all lines before it. */
function styleBefore(block, index) {
  block.styles ??= [block.style];
  const { styles } = block;
  while (styles.length <= index) styles.push(styleAfter(block.lines[styles.length - 1], styles.at(-1)));
  return styles[index];
}

const through = (blob, stream) => new Response(blob.stream().pipeThrough(stream));
const compress = (text) => through(new Blob([text]), new CompressionStream(FORMAT)).blob();
const decompress = (blob) => through(blob, new DecompressionStream(FORMAT)).text();
