// The changed lines of one file, in one column or side by side, with syntax colours and more context on request.

import { h, replace } from "../dom.js";
import { showError } from "../errors.js";
import { orderWarning } from "../repository/lines.js";
import { colours } from "../repository/syntax.js";
import { keepTyping, moveByKeys } from "./line_threads.js";
import { cut, hunksOf, markWords, pairs } from "./lines.js";

const PAGE_LINES = 1500;
const EXPAND_LINES = 20;

/**
 * The body of a file. `entry` is one of `changes`; `read()` returns the lines of the file after the change, or null. `element` is filled by
 * `draw(sideBySide)`. `threads`, if given, are those of the file (`lineThreads`).
 */
export function changedFile(entry, { read, threads = null }) {
  const name = entry.deletedFile ? entry.oldPath : entry.newPath;
  const hunks = hunksOf(entry.diff);
  const element = h("div.diff-body");
  let sideBySide = false;
  let text = null;
  let total = null;
  let shown = PAGE_LINES;
  hunks.forEach(markWords);
  const colouring = coloured(name, hunks);

  function draw(wide = sideBySide) {
    sideBySide = wide;
    if (!hunks.length) return replace(element, h("p.quiet", null, emptyWord(entry)), threads?.rest());
    const wrong = h("p.wrong", { role: "alert", hidden: true });
    const box = h("div.diff-lines", { tabindex: 0, role: "region", "aria-label": `Lines of ${name}`, "data-wide": wide });
    threads?.begin();
    let count = 0;
    let hidden = 0;
    for (const [at, hunk] of hunks.entries()) {
      if (count > shown) hidden += hunk.lines.length;
      else {
        box.append(...gap(at, wrong), ...rows(hunk));
        count += hunk.lines.length;
      }
    }
    if (!hidden) box.append(...gap(hunks.length, wrong));
    if (threads) moveByKeys(box);
    return keepTyping(element, () => replace(element, wrong,
      orderWarning(hunks.flatMap(({ lines }) => lines.map(({ text: line }) => line)).join("")), box,
      hidden ? h("button.more", { type: "button", onclick: () => ((shown = Infinity), draw()) }, `Show ${hidden} more lines`) : null,
      entry.tooLarge ? h("p.quiet", null, "The diff is too large to be shown completely.") : null, threads?.rest()));
  }

  const rows = (hunk) => (sideBySide ? pairs(hunk.lines).flatMap(wideRow) : hunk.lines.flatMap(narrowRow));

  function narrowRow(line) {
    if (line.kind === "remark") return [h("div.line.hunk", null, h("span.number"), h("span.number"), h("span.text", null, line.text))];
    const row = h(`div.line.${line.kind}`, null, number(line.before), number(line.after), content(line));
    return [row, threads?.after(row, line)].filter(Boolean);
  }

  function wideRow([left, right]) {
    const row = h("div.line.pair", null, half(left, "before"), half(right, "after"));
    const below = [left === right ? null : left, right].map((line) => line && line.kind !== "remark" && threads?.after(row, line));
    return [row, ...below].filter(Boolean);
  }

  const half = (line, side) => h(`div.half.${line?.kind ?? "none"}`, null, number(line?.[side]), line ? content(line) : h("span.text"));
  const number = (value) => h("span.number", { "data-number": value ?? null });

  function content(line) {
    const pieces = cut(line.pieces ?? [[line.text, null]], line.words ?? []);
    return h("span.text", null, pieces.map(([part, scope, changed]) => {
      const classes = [scope ? `syntax-${scope}` : null, changed ? "word" : null].filter(Boolean);
      return classes.length ? h(`span.${classes.join(".")}`, null, part) : part;
    }), line.text ? null : " ");
  }

  // Context between the hunks

  /** The row before hunk `at`, or after the last one, that shows more of the unchanged lines there. */
  function gap(at, wrong) {
    const hunk = hunks[at];
    const [from, to] = [at ? endOf(hunks[at - 1]).after : 1, hunk ? hunk.after - 1 : total];
    if (entry.newFile || entry.deletedFile || entry.tooLarge) return hunk && at ? [headRow(hunk)] : [];
    if (to !== null && from > to) return [];
    const grow = (end) => async () => {
      wrong.hidden = true;
      try {
        text ??= await read();
        if (!text) throw new Error("The file is too large, or it cannot be read.");
        total = text.length;
        expand(at, from, Math.min(to ?? total, total), end);
        colourAll();
        draw();
        (element.querySelectorAll(".expand")[at] ?? element.querySelector(".diff-lines")).focus({ preventScroll: true });
      } catch (error) {
        showError(wrong, error);
      }
    };
    const few = to !== null && to - from < EXPAND_LINES;
    const all = few ? [["all", `Show ${to - from + 1} unchanged ${to === from ? "line" : "lines"}`]] : [
      at ? ["top", hunk ? "↓ Show more after" : "↓ Show more"] : null, hunk ? ["bottom", at ? "↑ Show more before" : "↑ Show more"] : null].filter(Boolean);
    return [h("div.line.hunk.gap", null, all.map(([end, word]) => h("button.expand", { type: "button", onclick: grow(end) }, word)),
      hunk?.context ? h("span.text", null, hunk.context) : null)];
  }

  const headRow = (hunk) => h("div.line.hunk.gap", null, h("span.text", null, hunk.context || "…"));

  /** Adds the lines `from` to `to`, of which at most EXPAND_LINES, at one end of a gap. */
  function expand(at, from, to, end) {
    const first = end === "bottom" ? Math.max(from, to - EXPAND_LINES + 1) : from;
    const last = end === "top" ? Math.min(to, from + EXPAND_LINES - 1) : to;
    const shift = at ? endOf(hunks[at - 1]).before - endOf(hunks[at - 1]).after : hunks[0].before - hunks[0].after;
    const lines = Array.from({ length: last - first + 1 }, (_, index) => ({ kind: "same", expanded: true, text: text[first - 1 + index], before: first + index + shift, after: first + index }));
    if (!at || end === "bottom") {
      hunks[at].lines.unshift(...lines);
      hunks[at].before -= lines.length;
      hunks[at].after -= lines.length;
      if (at && first === from) join(at);
    } else {
      hunks[at - 1].lines.push(...lines);
      if (hunks[at] && last === to) join(at);
    }
  }

  /** Joins a hunk to the one before it, where nothing is left between them. */
  function join(at) {
    const [{ lines }] = hunks.splice(at, 1);
    hunks[at - 1].lines.push(...lines);
  }

  // Colours

  /** Colours the lines after the change as parts of the whole file, once it has been read. */
  function colourAll() {
    colours(name, text.join("\n")).then((found) => {
      if (!found) return;
      for (const { lines } of hunks) for (const line of lines) if (line.after !== null && line.kind !== "remark") line.pieces = found[line.after - 1];
      draw();
    }).catch(() => {});
  }

  colouring.then((any) => any && element.childElementCount && !element.contains(document.activeElement) && draw()).catch(() => {});
  return { element, draw, hunks };
}

/** Colours each side of each hunk separately; returns whether there are colours. */
async function coloured(name, hunks) {
  let any = false;
  for (const { lines } of hunks) {
    for (const kinds of [["same", "removed"], ["same", "added"]]) {
      const side = lines.filter(({ kind }) => kinds.includes(kind));
      const found = side.length ? await colours(name, side.map(({ text }) => text).join("\n")) : null;
      if (!found) continue;
      any = true;
      side.forEach((line, at) => (line.pieces = found[at]));
    }
  }
  return any;
}

/** The numbers of the lines after a hunk. */
function endOf({ lines, before, after }) {
  const count = (side) => lines.filter((line) => line[side] !== null).length;
  return { before: before + count("before"), after: after + count("after") };
}

function emptyWord(entry) {
  if (entry.tooLarge) return "The diff is too large to be shown.";
  return entry.diff ? "The file is binary, or only its mode changed." : "The contents did not change.";
}
