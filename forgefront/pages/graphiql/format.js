// In the place of prettier, for the two formats that GraphiQL asks of it.
import { parse, print } from "graphql";
import { applyEdits, format as edits } from "jsonc-parser";

export const printers = {};
export const parsers = {};

export function format(text, { parser }) {
  if (parser === "graphql") return print(parse(text));
  return applyEdits(text, edits(text, undefined, { tabSize: 2, insertSpaces: true }));
}

export default { format, printers, parsers };
