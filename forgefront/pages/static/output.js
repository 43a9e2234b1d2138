// The output of a build: its last lines, with ANSI colours. Follows the end unless the reader has scrolled up.

import { h, replace } from "./dom.js";

const NEAR = 40;
const COLOURS = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];
// eslint-disable-next-line no-control-regex
const ESCAPE = /\x1b(?:\[([0-9;?]*)([A-Za-z])|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()][A-Z0-9]|[=>])/g;

/** Returns an element, `show(lines)` to fill it, and `toEnd()`, to call when it becomes visible. */
export function output() {
  const text = h("code");
  const box = h("pre.output", { tabindex: 0, role: "log", "aria-live": "off", "aria-label": "Output" }, text);
  const end = h("button.to-end", { type: "button", hidden: true, onclick: () => toEnd() }, "Scroll to the end");
  const toEnd = () => box.scrollTo(0, box.scrollHeight);
  const atEnd = () => box.scrollHeight - box.scrollTop - box.clientHeight < NEAR;
  box.addEventListener("scroll", () => (end.hidden = atEnd()));
  let before = null;
  return {
    element: h("div.output-frame", null, box, end),
    toEnd,
    show(lines) {
      const now = lines.join("\n");
      if (now === before) return;
      const following = before === null || atEnd();
      before = now;
      replace(text, lines.map((line) => h("span.output-line", null, coloured(line), "\n")));
      if (following) toEnd();
      end.hidden = atEnd();
    },
  };
}

/** The spans of a line, without text that a carriage return overwrote and without other control sequences. */
export function coloured(line) {
  const shown = line.split("\r").findLast((part) => part.trim()) ?? "";
  const parts = [];
  let style = {};
  let from = 0;
  const add = (text) => text && parts.push(style.colour || style.bold ? h(`span${style.colour ? `.ink-${style.colour}` : ""}${style.bold ? ".bold" : ""}`, null, text) : text);
  for (const match of shown.matchAll(ESCAPE)) {
    add(shown.slice(from, match.index));
    from = match.index + match[0].length;
    if (match[2] === "m") style = styled(style, match[1].split(";").map(Number));
  }
  add(shown.slice(from));
  return parts;
}

/** The style after an SGR sequence (ECMA-48, section 8.3.117): bold and the sixteen foreground colours. */
function styled(style, codes) {
  for (const code of codes) {
    if (code === 38 || code === 48) break;
    if (code === 0) style = {};
    else if (code === 1) style = { ...style, bold: true };
    else if (code === 22) style = { ...style, bold: false };
    else if (code === 39) style = { ...style, colour: null };
    else if ((code >= 30 && code <= 37) || (code >= 90 && code <= 97)) style = { ...style, colour: COLOURS[code % 10] };
  }
  return style;
}
