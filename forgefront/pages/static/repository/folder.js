// A directory: its entries, directories first, and its README.

import { address } from "../address.js";
import { h, replace, s } from "../dom.js";
import { ago, more } from "../parts.js";
import { size } from "../sizes.js";
import { fileAddress, folderAddress } from "./addresses.js";

const KINDS = {
  TREE: ["folder", "M1.500 3A1 1 0 0 1 2.500 2h3.600l1.600 1.700h5.800a1 1 0 0 1 1 1v7.800a1 1 0 0 1-1 1h-11a1 1 0 0 1-1-1Z"],
  COMMIT: ["submodule", "M8 .8 15 4.500v7L8 15.200 1 11.500v-7Zm0 2L3.900 5 8 7.100 12.100 5ZM2.800 6.500v4l4.300 2.300V8.700Zm10.400 0L8.900 8.700v4.100l4.300-2.300Z"],
  BLOB: ["file", "M3 1h6.500L13 4.500V15H3Zm1.600 1.600v10.800h6.800V6H8V2.600Z"],
  LINK: ["symbolic link", "M3 1h6.500L13 4.500V15H3Zm1.600 1.600v10.800h6.800V6H8V2.600ZM6 9h2V7.500L10.500 10 8 12.500V11H6Z"],
};
const ORDER = ["TREE", "COMMIT", "BLOB"];
const README = /^readme(\.(md|markdown|txt|rst|adoc|org))?$/i;
const SYMBOLIC_LINK = "120000";

/** The README among the entries of a directory. */
export const readmeOf = (entries) => entries.find(({ name, kind, mode }) => kind === "BLOB" && mode !== SYMBOLIC_LINK && README.test(name));

/** The entries of a directory. `read(after)` returns the connection of further ones, `readChanges(after)` their newest commits. */
export function folder(path, ref, tree, read, readChanges) {
  const rows = new Map();
  const list = h("ol.rows.files", { "data-walk": true });
  const add = ({ nodes }, after = null) => {
    for (const entry of nodes) rows.set(entry.name, { entry, ...row(path, ref, entry) });
    list.replaceChildren(...[...rows.values()].sort((one, other) => ORDER.indexOf(one.entry.kind) - ORDER.indexOf(other.entry.kind)).map(({ element }) => element));
    // The directory does not wait for the walk through its history; without the commits it is still a directory.
    readChanges(after).then((changes) => {
      for (const { name, lastCommit } of changes) if (lastCommit) replace(rows.get(name)?.change ?? h("p"), change(path, lastCommit));
    }).catch(() => {});
  };
  add(tree);
  return [list, more(tree.pageInfo, async (after) => {
    const next = await read(after);
    add(next, after);
    return next.pageInfo;
  }, "Show more files")];
}

function row(path, ref, { name, path: place, kind, mode, oid, size: bytes }) {
  const [word, shape] = KINDS[mode === SYMBOLIC_LINK ? "LINK" : kind];
  const href = { TREE: folderAddress, BLOB: fileAddress }[kind]?.(path, place, ref);
  const commit = h("p.file-change");
  const element = h("li.row.file", { "data-box": true, "data-kind": kind },
    h("span.file-kind", { title: word }, s("svg.glyph", { viewBox: "0 0 16 16", width: 16, height: 16, "aria-hidden": "true" }, s("path", { d: shape })), h("span.unseen", null, word)),
    h("p.row-title", null, href ? h("a", { href, "data-item": true, title: name }, name) : [name, " ", h("code", null, oid.slice(0, 8))]),
    commit, h("span.file-size", null, bytes === null ? null : size(bytes)));
  return { element, change: commit };
}

const change = (path, { oid, title, committedAt }) => [h("a.quiet-link", { href: address(path, "commit", oid), title }, title), ago(committedAt)];
