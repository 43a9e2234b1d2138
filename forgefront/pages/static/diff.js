// Changed files with their lines, marked by a sign, a colour and line numbers. Long files are rendered when they are opened.

import { h, replace } from "./dom.js";

const OPEN_LINES = 600;
const PAGE_LINES = 1500;

/** The files of a change; null where the repository could not be read. */
export function changes(entries) {
  if (!entries) return h("p.quiet", null, "The repository cannot be read, so the changes are not shown.");
  if (!entries.length) return h("p.quiet", null, "No files changed.");
  let left = OPEN_LINES;
  return h("ol.diffs", { "data-walk": true }, entries.map((entry) => {
    const lines = linesOf(entry.diff);
    left -= lines.length;
    return h("li", { "data-box": true }, file(entry, lines, left > 0));
  }));
}

/** "3 files, +10 −2" */
export const counted = ({ files, additions, deletions }) =>
  h("span.counted", null, `${files} ${files === 1 ? "file" : "files"}`, h("b.added", null, `+${additions}`), h("b.removed", null, `−${deletions}`));

const WORDS = [["newFile", "new"], ["deletedFile", "deleted"], ["renamedFile", "renamed"]];

function file(entry, lines, open) {
  const word = WORDS.find(([name]) => entry[name])?.[1];
  const body = h("div.diff-body");
  let drawn = false;
  const draw = () => {
    if (drawn) return;
    drawn = true;
    if (entry.tooLarge) replace(body, h("p.quiet", null, "The diff is too large to be shown."));
    else if (!lines.length) replace(body, h("p.quiet", null, entry.diff ? "The file is binary, or only its mode changed." : "The contents did not change."));
    else replace(body, page(lines));
  };
  const element = h("details.diff", { open },
    h("summary", { "data-item": true },
      h("span.diff-path", null, entry.renamedFile ? [entry.oldPath, " → "] : null, entry.deletedFile ? entry.oldPath : entry.newPath),
      word ? h("span.tag", null, word) : null,
      h("span.counted", null, h("b.added", null, `+${entry.additions}`), h("b.removed", null, `−${entry.deletions}`))),
    body);
  element.addEventListener("toggle", () => element.open && draw());
  if (open) draw();
  return element;
}

function page(lines) {
  const shown = h("div.diff-lines", { tabindex: 0, role: "region", "aria-label": "Lines" }, lines.slice(0, PAGE_LINES).map(row));
  if (lines.length <= PAGE_LINES) return shown;
  const rest = h("button.more", { type: "button", onclick: () => {
    shown.append(...lines.slice(PAGE_LINES).map(row));
    rest.remove();
  } }, `Show ${lines.length - PAGE_LINES} more lines`);
  return [shown, rest];
}

const row = ({ kind, text, before, after }) =>
  h(`div.line.${kind}`, null, h("span.number", { "data-number": before }), h("span.number", { "data-number": after }), h("span.text", null, text || " "));

/** The lines of a unified diff with their numbers, without those before the first "@@". */
function linesOf(diff) {
  const found = [];
  let [before, after] = [0, 0];
  for (const text of diff.replace(/\n$/, "").split("\n")) {
    const hunk = /^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@/.exec(text);
    if (hunk) {
      [before, after] = [Number(hunk[1]), Number(hunk[2])];
      found.push({ kind: "hunk", text, before: null, after: null });
    } else if (found.length) {
      if (text.startsWith("+")) found.push({ kind: "added", text, before: null, after: after++ });
      else if (text.startsWith("-")) found.push({ kind: "removed", text, before: before++, after: null });
      else if (text.startsWith("\\")) found.push({ kind: "hunk", text, before: null, after: null });
      else found.push({ kind: "same", text, before: before++, after: after++ });
    }
  }
  return found;
}
