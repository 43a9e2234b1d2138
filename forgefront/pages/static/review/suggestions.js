// Suggestions of a note: the change that each makes, instead of its code, and the button that commits it.

import { address } from "../address.js";
import { doing } from "../discussion.js";
import { h } from "../dom.js";
import { orderWarning } from "../repository/lines.js";
import { cut, markWords } from "./lines.js";

/** Shows the suggestions of a note in its `element`. `done()` is called after one was applied. */
export function showSuggestions(page, element, { id, suggestions }, done) {
  for (const suggestion of suggestions ?? []) {
    const code = element.querySelector(`code[data-suggestion="${suggestion.index}"]`);
    code?.closest("pre")?.replaceWith(box(page, id, suggestion, done));
  }
  return element;
}

function box(page, note, { index, oldText, newText, firstLine, appliedOid, viewerCanApply }, done) {
  const wrong = h("p.wrong", { role: "alert", hidden: true });
  const lines = [...linesOf(oldText ?? "", "removed"), ...linesOf(newText, "added")];
  markWords({ lines });
  let foot = null;
  if (appliedOid) foot = ["Applied as ", h("a", { href: address(page.where.path, "commit", appliedOid) }, h("code", null, appliedOid.slice(0, 8)))];
  else if (viewerCanApply) foot = doing("button", "Apply the suggestion", wrong, async () => {
    await page.mutate("ApplySuggestion", { note, index });
    await done();
  });
  else if (firstLine === null) foot = "The lines have changed since.";
  return h("figure.suggestion", { "aria-label": "Suggested change" },
    h("div.diff-lines", { tabindex: 0, role: "group", "aria-label": "Lines of the suggestion" }, lines.map(row)), orderWarning(`${oldText}${newText}`),
    wrong, foot ? h("figcaption", null, foot) : null);
}

const linesOf = (text, kind) => (text ? text.replace(/\n$/, "").split("\n").map((line) => ({ kind, text: line.replace(/\r$/, "") })) : []);

const row = ({ kind, text, words }) =>
  h(`div.line.${kind}`, null, h("span.unseen", null, kind), h("span.text", null, cut([[text, null]], words ?? []).map(([part, , changed]) => (changed ? h("span.word", null, part) : part)), text ? null : " "));

/** A button that adds a suggestion with the text of a line to a field. */
export const suggestButton = (line, fieldOf) => h("button", { type: "button", onclick: () => {
  const field = fieldOf();
  const fence = /^ {0,3}(`{3,})/.exec(line)?.[1] ? "~~~" : "```";
  const before = field.value && !field.value.endsWith("\n") ? "\n" : "";
  const start = field.value.length + before.length + fence.length + "suggestion\n".length;
  field.value += `${before}${fence}suggestion\n${line}\n${fence}\n`;
  field.dispatchEvent(new Event("input", { bubbles: true }));
  field.focus();
  field.setSelectionRange(start, start + line.length);
} }, "Suggest a change");
