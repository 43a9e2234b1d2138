// The comparison of two refs: the commits and the changes of one since it left the other, and the form of a merge request of them.

import { address } from "../../address.js";
import { h, replace } from "../../dom.js";
import { replaceByError } from "../../errors.js";
import { field, form } from "../../forms.js";
import { errorIn } from "../../graph.js";
import { empty, more, section } from "../../parts.js";
import { compareAddress } from "../../repository/addresses.js";
import { refName, showFiles } from "../../repository/file_bar.js";
import { styles } from "../../repository/styles.js";
import { changes, fileReader } from "../../review/changes.js";
import { commitRow, rows } from "../../rows.js";
import { sheet } from "../../styles/sheets.js";

export async function open(page) {
  const { path } = page.where;
  const [, left, right] = /^([^]*?)\.{2,3}([^]*)$/.exec(page.where.range ?? "") ?? [];
  const [{ project }] = await Promise.all([page.request("Refs", { path }), styles(), sheet("review")]);
  if (!project) throw page.missing("project");
  const [from, to] = [page.query.get("from") || left || project.defaultBranch || "", page.query.get("to") || right || ""];
  const body = h("div");
  showFiles(page, project, { ref: null, heading: "Compare" }, choice(page, project, from, to), body);
  if (!project.viewerCan.readCode) replace(body, empty("No access to the code", "You can see this project, but not its code."));
  else if (from && to) await show(page, project, from, to, body);
  else replace(body, empty("Choose what to compare", "Shows the changes since the second branched off the first."));
}

/** The two refs; any branch, tag or commit id can be typed. */
function choice(page, { fullPath: path, branches, tags }, from, to) {
  const names = [...(branches?.nodes ?? []), ...(tags?.nodes ?? [])].map(({ name }) => name);
  const box = (name, word, value) => field(name, word, { value, required: true, list: "refs", autocomplete: "off" });
  const submit = (event) => {
    event.preventDefault();
    page.go(compareAddress(path, event.target.elements.from.value.trim(), event.target.elements.to.value.trim()));
  };
  return h("form.comparison", { "aria-label": "Compare", onsubmit: submit },
    box("from", "From", from), box("to", "To", to), h("datalist", { id: "refs" }, names.map((value) => h("option", { value }))),
    h("div.actions", null, h("button.primary", null, "Compare"), to ? h("a.button", { href: compareAddress(path, to, from) }, "Swap") : null));
}

async function show(page, project, from, to, body) {
  const { fullPath: path } = project;
  const about = { path, from, to };
  const data = await page.request("Comparison", { ...about, after: null });
  const { compare, source, target } = data.project;
  if (!compare) {
    const error = errorIn(data);
    replace(body, error && error.code !== "NOT_FOUND" ? empty("They cannot be compared", error.message) : empty("They cannot be compared", `${refName(from)} or ${refName(to)} is not a branch, a tag or a commit.`));
    return;
  }
  if (compare.sameCommit || !compare.aheadBy) {
    replace(body, empty("Nothing to compare", compare.sameCommit ? `${refName(from)} and ${refName(to)} are the same commit.` : `${refName(from)} has all commits of ${refName(to)}.`));
    return;
  }
  const list = rows(compare.commits.nodes, commitRow(path), "");
  const files = h("div", null, h("p.quiet", null, "Loading the files…"));
  const mayMerge = source && target && project.mergeRequestsEnabled && project.viewerCan.createMergeRequest;
  replace(body, h("div.column", null,
    mayMerge ? h("details.menu", null, h("summary", null, "New merge request"), merging(page, about, compare.commits.nodes)) : null,
    section(compare.aheadBy === 1 ? "1 commit" : `${compare.aheadBy} commits`, standing(path, from, compare),
      list, more(compare.commits.pageInfo, async (after) => {
        const next = (await page.request("Comparison", { ...about, after })).project.compare.commits;
        list.append(...next.nodes.map(commitRow(path)));
        return next.pageInfo;
      }, "Show more commits")),
    files));
  try {
    const { project: { compare: found } } = await page.request("Changes", about);
    replace(files, section("Changes", null, changes(page, found?.diff, { readFile: fileReader(page, path, to) })));
  } catch (error) {
    replaceByError(files)(error);
  }
}

const standing = (path, from, { behindBy, mergeBase }) =>
  h("span.part-side", null, behindBy ? h("span", null, `${behindBy} behind ${refName(from)}`) : null,
    mergeBase ? h("a", { href: address(path, "commit", mergeBase.oid) }, "since ", h("code", null, mergeBase.shortOid)) : h("span", null, "no common commit"));

/** The form of a merge request. A single commit gives its title. */
function merging(page, { path, from, to }, commits) {
  const element = form("New merge request", [
    field("title", "Title", { required: true, maxlength: 255, value: commits.length === 1 ? commits[0].title : "", autocapitalize: "sentences", spellcheck: "true" }),
    field("description", "Description", { kind: "textarea", autocapitalize: "sentences", spellcheck: "true" }),
  ], {
    word: "Create the merge request", keep: page,
    async act({ title, description }) {
      const { mergeRequest } = await page.mutate("CreateMergeRequest", { path, source: to, target: from, title: title.trim(), description: description || null });
      page.announce("The merge request is created.");
      page.go(address(path, "merge_requests", mergeRequest.iid));
    },
  });
  return element;
}
