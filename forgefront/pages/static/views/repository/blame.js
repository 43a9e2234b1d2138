// The blame of a file: beside its lines, the commits that changed them last.

import { address } from "../../address.js";
import { h } from "../../dom.js";
import { errorIn } from "../../graph.js";
import { ago, avatar, empty } from "../../parts.js";
import { blameAddress, fileAddress, historyAddress } from "../../repository/addresses.js";
import { pathBar, refChoice, showFiles } from "../../repository/file_bar.js";
import { orderWarning, pieces } from "../../repository/lines.js";
import { styles } from "../../repository/styles.js";
import { colours } from "../../repository/syntax.js";

const PAGE_RANGES = 400;

export async function open(page) {
  const { path, at: place } = page.where;
  const given = page.query.get("ref") || null;
  const [data] = await Promise.all([page.request("Blame", { path, ref: given, at: place }), styles()]);
  const { project } = data;
  if (!project) throw page.missing("project");
  const ref = given ?? project.defaultBranch;
  const { nodes = [], pageInfo } = project.branches ?? {};
  // The history of a file is that of a branch.
  const mayBeBranch = pageInfo?.hasNextPage || nodes.some(({ name }) => name === ref);
  const bar = h("div.file-bar", null,
    refChoice(page, path, project, ref, (name) => blameAddress(path, place, name)),
    pathBar(project, place, ref, { isFile: true }),
    h("nav.file-links", { "aria-label": "More about this file" }, h("a", { href: fileAddress(path, place, ref) }, "Show it"),
      mayBeBranch ? h("a", { href: historyAddress(path, place, ref) }, "History") : null));
  const { blob } = project;
  const shown = !blob?.blame ? empty("The blame cannot be shown", errorIn(data)?.message ?? "The file does not exist in this version.")
    : !blob.blame.length ? empty("No lines", "The file is empty or binary.")
      : lines(path, ref, blob);
  showFiles(page, project, { place, ref, heading: "Blame" }, bar, shown);
}

function lines(path, ref, blob) {
  const all = blob.text.split("\n");
  const list = h("ol.blame", { "aria-label": `Commits of the lines of ${blob.name}`, "data-walk": true });
  const rest = h("button.more", { type: "button", onclick: () => draw() }, "Show more lines");
  const parts = [];
  let coloured = null;
  const text = (from, count) => all.slice(from - 1, from - 1 + count).map((line, index) =>
    h("span.text", null, coloured?.[from - 1 + index] ? pieces(coloured[from - 1 + index]) : line.replace(/\r$/, ""), "\n"));
  const draw = () => {
    for (const each of blob.blame.slice(parts.length, parts.length + PAGE_RANGES)) {
      const code = h("pre.blame-lines", null, text(each.startLine, each.lineCount));
      parts.push([each, code]);
      list.append(range(path, ref, blob, each, code));
    }
    rest.hidden = parts.length === blob.blame.length;
  };
  draw();
  colours(blob.name, blob.text).then((found) => {
    coloured = found;
    if (found) for (const [each, code] of parts) code.replaceChildren(...text(each.startLine, each.lineCount));
  }).catch(() => {});
  return h("div.blame-view", null, orderWarning(blob.text, "This file has"), list, rest);
}

function range(path, ref, blob, { startLine, lineCount, oid, previousOid, previousPath, commit }, code) {
  const last = startLine + lineCount - 1;
  const place = startLine === last ? `line ${startLine}` : `lines ${startLine} to ${last}`;
  return h("li.blame-range", { "data-box": true },
    h("div.blame-commit", null,
      avatar(commit?.author, commit?.authorName),
      h("a.blame-title", { href: address(path, "commit", oid), "data-item": true, title: commit ? `${commit.title} (${commit.authorName})` : oid }, commit?.title ?? oid.slice(0, 8)),
      commit ? ago(commit.committedAt) : null,
      previousOid ? h("a.blame-before", { href: blameAddress(path, previousPath, previousOid), title: "Blame before this change", "aria-label": `Blame before this change of ${place}` }, "before") : null),
    h("a.blame-number", { href: `${fileAddress(path, blob.path, ref)}#L${startLine}${last > startLine ? `-${last}` : ""}`, tabindex: -1 },
      h("span.unseen", null, place), Array.from({ length: lineCount }, (_, index) => h("span", { "aria-hidden": "true" }, startLine + index))),
    code);
}
