// The lines of a file with their numbers. #L10 and #L10-20 in the address mark lines.

import { h } from "../dom.js";
import { colours } from "./syntax.js";

const PAGE_LINES = 3000;
const RANGE = /^#?L?(\d+)(?:-L?(\d+))?$/;
// Characters that change the order in which others are shown, so that a text can look like another one.
const REORDERING = /[\u202A-\u202E\u2066-\u2069]/;

/** The warning of a text that may read differently from what programs see, or null. */
export const orderWarning = (text, lead = "These lines have") =>
  REORDERING.test(text) ? h("p.wrong", null, `${lead} invisible characters that change the order of the text: it may read differently from what programs see.`) : null;

/** The lines of a text, and `goTo(hash)`, which marks lines and scrolls to them; it returns whether there are such lines. */
export function lines(text, name = "") {
  const all = text.split("\n");
  if (all.at(-1) === "") all.pop();
  const shown = h("div.code-lines", { tabindex: 0, role: "region", "aria-label": "Lines of the file", onclick: choose });
  const rest = h("button.more", { type: "button", onclick: () => draw(all.length) });
  let coloured = null;
  const draw = (count) => {
    const from = shown.childElementCount;
    shown.append(...all.slice(from, count).map((line, index) => row(line, from + index + 1, coloured?.[from + index])));
    rest.hidden = shown.childElementCount === all.length;
    rest.textContent = `Show ${all.length - shown.childElementCount} more lines`;
  };
  draw(PAGE_LINES);
  colours(name, text).then((found) => {
    coloured = found;
    for (const [index, each] of [...shown.children].entries()) if (found?.[index]?.some(([, scope]) => scope)) each.lastChild.replaceChildren(...pieces(found[index]), "\n");
  }).catch(() => {});

  let first = null;
  function goTo(hash) {
    const [, from, to] = RANGE.exec(hash.trim()) ?? [];
    const [start, end] = [Number(from), Number(to ?? from)].sort((one, other) => one - other);
    for (const each of shown.querySelectorAll(".chosen")) each.classList.remove("chosen");
    if (!from || start < 1 || start > all.length) return false;
    if (start > shown.childElementCount) draw(all.length);
    first = start;
    for (let number = start; number <= Math.min(end, shown.childElementCount); number++) shown.children[number - 1].classList.add("chosen");
    history.replaceState(history.state, "", start === end ? `#L${start}` : `#L${start}-${end}`);
    shown.children[start - 1].scrollIntoView({ block: "center" });
    return true;
  }

  /** A click on a number marks its line, with Shift all lines from the marked one. The page does not move. */
  function choose(event) {
    const number = event.target.closest(".number")?.dataset.number;
    if (!number || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const top = scrollY;
    goTo(event.shiftKey && first ? `${first}-${number}` : number);
    scrollTo(scrollX, top);
  }

  return {
    count: all.length,
    element: [
      orderWarning(text, "This file has"),
      h("div.code", null, shown, rest),
    ],
    goTo,
  };
}

// The numbers are links for a pointer; the field "Go to line" serves the keyboard.
const row = (line, number, found = null) =>
  h("div.code-line", null, h("a.number", { href: `#L${number}`, "data-number": number, tabindex: -1, "aria-label": `Line ${number}` }),
    h("span.text", null, found ? pieces(found) : line.replace(/\r$/, ""), "\n"));

/** The pieces of a line as elements whose class says what they are. */
export const pieces = (found) => found.map(([text, scope]) => (scope ? h(`span.syntax-${scope}`, null, text) : text));
