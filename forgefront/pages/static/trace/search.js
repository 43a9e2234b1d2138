// Searches a trace, block by block, so that a long one does not stop the page.

import { plain } from "./ansi.js";
import { unmarked } from "./sections.js";

const MAX_MATCHES = 10_000;

/** The expression that finds a text literally, without regard to case; null for an empty text. */
export const patternOf = (text) => (text ? new RegExp(text.replace(/[.*+?^${}()|[\]\\/-]/g, "\\$&"), "gi") : null);

/** The numbers of the lines of `text` (a TraceText) that match, from 0, at most MAX_MATCHES; `progress(found)` is called as they are found. */
export async function search(text, pattern, signal, progress) {
  const found = [];
  const one = new RegExp(pattern.source, "i");
  for await (const [first, block] of text.texts()) {
    if (signal.aborted) return found;
    const lines = block.split("\n");
    for (let index = 0; index < lines.length && found.length < MAX_MATCHES; index++) {
      if (one.test(plain(unmarked(lines[index])))) found.push(first + index);
    }
    if (found.length >= MAX_MATCHES) break;
    progress(found);
    await new Promise((resolve) => setTimeout(resolve));
  }
  return found;
}

export const labelOf = (count, at) => (count === 0 ? "No match" : `${at + 1} of ${count >= MAX_MATCHES ? `${MAX_MATCHES.toLocaleString("en")} or more` : count.toLocaleString("en")} lines`);
