// Escape sequences of terminals in a line of output (ECMA-48): colours and styles are shown, carriage returns and backspaces move
// to text that is overwritten, the end of a line is erased; everything else is dropped.

import { h } from "../dom.js";
import { fromRgb, inks } from "./colours.js";

const NAMES = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];
/* eslint-disable no-control-regex */
// In this order: control sequences, commands to the system such as titles and links, other strings, other escapes, other controls.
const CONTROLS = /\x1b(?:\[([0-?]*)[ -/]*([@-~])|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[PX^_][^\x1b]*(?:\x1b\\)?|[ -/]*[0-~])|[\0-\x08\x0b-\x1f\x7f-\x9f]/g;
const SPECIAL = /[\0-\x08\x0b-\x1f\x7f-\x9f]/;
const MOVES = /[\r\x08]/;
const STYLES = /\x1b\[([0-9;:]*)m/g;
/* eslint-enable no-control-regex */
const FLAGS = { 1: "bold", 2: "dim", 3: "italic", 4: "underline", 7: "inverse", 9: "strike", 21: "underline" };
const OFF = { 22: ["bold", "dim"], 23: ["italic"], 24: ["underline"], 27: ["inverse"], 29: ["strike"], 39: ["text"], 49: ["background"] };
const PLAIN = Object.freeze({});

/** The style of text that follows a line which begins with `style`; undefined is no style. */
export function styleAfter(line, style = PLAIN) {
  if (!line.includes("\x1b")) return style;
  for (const match of line.matchAll(STYLES)) style = styled(style, match[1]);
  return style;
}

/** The pieces of a line as `[text, style]`. */
export function piecesOf(line, style = PLAIN) {
  const text = line.replace(/\r+$/, "");
  if (!SPECIAL.test(text)) return text ? [[text, style]] : [];
  return MOVES.test(text) ? overwritten(text, style) : sequential(text, style);
}

/** The text of a line as it is shown. */
export const plain = (line) => (SPECIAL.test(line) ? piecesOf(line).map(([text]) => text).join("") : line);

function sequential(text, style) {
  const found = [];
  let from = 0;
  for (const match of text.matchAll(CONTROLS)) {
    if (match.index > from) found.push([text.slice(from, match.index), style]);
    from = match.index + match[0].length;
    if (match[2] === "m") style = styled(style, match[1]);
  }
  if (from < text.length) found.push([text.slice(from), style]);
  return found;
}

/** Writes into cells, as terminals do, so that a shorter text leaves the end of the one before. */
function overwritten(text, style) {
  let cells = [];
  let at = 0;
  const write = (written) => {
    for (const each of written) {
      while (cells.length < at) cells.push([" ", PLAIN]);
      cells[at++] = [each, style];
    }
  };
  let from = 0;
  for (const match of text.matchAll(CONTROLS)) {
    write(text.slice(from, match.index));
    from = match.index + match[0].length;
    if (match[0] === "\r") at = 0;
    else if (match[0] === "\b") at = Math.max(0, at - 1);
    else if (match[2] === "m") style = styled(style, match[1]);
    else if (match[2] === "K") {
      if (match[1] === "" || match[1] === "0") cells = cells.slice(0, at);
      else if (match[1] === "2") cells = [];
    }
  }
  write(text.slice(from));
  const found = [];
  for (const [each, own] of cells) {
    if (found.length && found.at(-1)[1] === own) found.at(-1)[0] += each;
    else found.push([each, own]);
  }
  return found;
}

/** The style after the parameters of an SGR sequence (ECMA-48, section 8.3.117; ITU-T T.416, section 13.1.8 for colours). */
function styled(before, parameters) {
  let style = { ...before };
  const groups = parameters.split(";");
  for (let index = 0; index < groups.length; index++) {
    const [code, ...parts] = groups[index].split(":").map(Number);
    if (code === 38 || code === 48 || code === 58) {
      // "38:2:SPACE:R:G:B" in one parameter, or "38;2;R;G;B" in several.
      const kind = parts.length ? parts[0] : Number(groups[++index]);
      const values = parts.length ? parts.slice(kind === 2 && parts.length > 4 ? 2 : 1) : groups.slice(index + 1, index + (kind === 2 ? 4 : 2)).map(Number);
      if (!parts.length) index += kind === 2 ? 3 : kind === 5 ? 1 : 0;
      const colour = kind === 2 && values.length >= 3 ? fromRgb(values.slice(0, 3)) : kind === 5 && values[0] >= 0 && values[0] <= 255 ? values[0] : null;
      if (colour !== null && code !== 58) style[code === 38 ? "text" : "background"] = colour;
    } else if (code === 0) style = {};
    else if (code === 4 && parts[0] === 0) delete style.underline;
    else if (FLAGS[code]) style[FLAGS[code]] = true;
    else if (OFF[code]) for (const name of OFF[code]) delete style[name];
    else if (code >= 30 && code <= 37) style.text = code - 30;
    else if (code >= 40 && code <= 47) style.background = code - 40;
    else if (code >= 90 && code <= 97) style.text = code - 82;
    else if (code >= 100 && code <= 107) style.background = code - 92;
  }
  return style;
}

/** An element for a piece, or its text if it has no style. */
export function inked([text, style]) {
  const names = ["bold", "italic", "underline", "strike"].filter((name) => style[name]);
  const isNamed = typeof style.text === "number" && style.text < 8 && style.background === undefined && !style.inverse;
  if (isNamed) names.push(`ink-${NAMES[style.text]}`);
  const colours = isNamed ? {} : inks(style);
  if (!names.length && !colours.text) return text;
  const element = h(["span", ...names].join("."), null, text);
  if (colours.text) element.style.setProperty("color", colours.text);
  if (colours.background) element.style.setProperty("background-color", colours.background);
  return element;
}

/** The elements of one line, without what precedes it. */
export const coloured = (line) => piecesOf(line).map(inked);
