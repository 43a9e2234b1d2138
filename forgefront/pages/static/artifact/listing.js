// The files in an artifact that is a zip archive: addresses, and a folder of it.

import { address } from "../address.js";
import { h, s } from "../dom.js";
import { size } from "../sizes.js";
import { sheet } from "../styles/sheets.js";

const KINDS = {
  FOLDER: ["folder", "M1.500 3A1 1 0 0 1 2.500 2h3.600l1.600 1.700h5.800a1 1 0 0 1 1 1v7.800a1 1 0 0 1-1 1h-11a1 1 0 0 1-1-1Z"],
  FILE: ["file", "M3 1h6.500L13 4.500V15H3Zm1.600 1.600v10.800h6.800V6H8V2.600Z"],
  LINK: ["symbolic link", "M3 1h6.500L13 4.500V15H3Zm1.600 1.600v10.800h6.800V6H8V2.600ZM6 9h2V7.500L10.500 10 8 12.500V11H6Z"],
};

export const styles = () => sheet("files");

/** Whether the files of an artifact are shown: only those of zip archives. */
export const isArchive = (filename) => /\.zip$/i.test(filename);

/** The address of a file in the artifact of a build; that of a folder ends with a slash, "" is the root. */
export const artifactAddress = (path, build, place, { isFolder = false } = {}) =>
  `${address(path, "builds", build, "artifacts", ...(place ? ["browse", place] : []))}${isFolder && place ? "/" : ""}`;

/** The rows of a folder. */
export const entryRows = (path, build, nodes) => nodes.map(({ name, path: place, kind, size: bytes }) => {
  const [word, shape] = KINDS[kind];
  return h("li.row.file", { "data-box": true, "data-kind": kind },
    h("span.file-kind", { title: word }, s("svg.glyph", { viewBox: "0 0 16 16", width: 16, height: 16, "aria-hidden": "true" }, s("path", { d: shape })), h("span.unseen", null, word)),
    h("p.row-title", null, h("a", { href: artifactAddress(path, build, place, { isFolder: kind === "FOLDER" }), "data-item": true, title: name }, name)),
    h("span.file-change"), h("span.file-size", null, bytes === null ? null : size(bytes)));
});
