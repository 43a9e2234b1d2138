// What the pages of files share: the choice of a ref, and the path with its directories.

import { address } from "../address.js";
import { h } from "../dom.js";
import { projectCrumbs } from "../project/crumbs.js";
import { showProject } from "../project/head.js";
import { fileAddress, folderAddress, folderOf } from "./addresses.js";

const SHORT = 8;
const FULL_ID = /^[0-9a-f]{40}([0-9a-f]{24})?$/;

/** A branch or a tag by its name, a commit by the start of its id. */
export const refName = (ref) => (FULL_ID.test(ref) ? ref.slice(0, SHORT) : ref);

/**
 * Shows a page of files. `place` is the path of a file or a directory; breadcrumbs lead to the directory above it. `heading` is what the
 * page shows of it, if that is not its contents.
 */
export function showFiles(page, project, { place = "", ref, heading = null }, ...content) {
  showProject(page, project, "files", content);
  const { namespace, fullPath: path } = project;
  const above = place || heading ? [[folderOf(place).split("/").at(-1) || "Files", folderAddress(path, folderOf(place), ref)]] : [];
  page.title(`${[heading, place].filter(Boolean).join(": ") || "Files"} · ${namespace.name} / ${project.name}`, projectCrumbs(project, ...above));
}

/**
 * The choice of a branch or a tag. `refs` has the connections `branches` and `tags`; what is not on their first pages is reached by the
 * pages of branches and tags. `hrefOf(ref)` is the address of the same page at another ref.
 */
export function refChoice(page, path, { branches, tags }, ref, hrefOf) {
  const groups = [["Branches", "branches", branches], ["Tags", "tags", tags]].filter(([, , found]) => found?.nodes.length);
  const known = groups.some(([, , { nodes }]) => nodes.some(({ name }) => name === ref));
  if (!groups.length && !ref) return null;
  const choose = ({ target }) => {
    const { more } = target.selectedOptions[0].dataset;
    page.go(more ? address(path, more) : hrefOf(target.value));
  };
  return h("p.ref-choice", null,
    h("label.unseen", { for: "ref" }, "Branch or tag"),
    h("select", { id: "ref", onchange: choose },
      known || !ref ? null : h("option", { value: ref, selected: true }, refName(ref)),
      groups.map(([word, part, { nodes, pageInfo }]) => h("optgroup", { label: word },
        nodes.map(({ name }) => h("option", { value: name, selected: name === ref }, name)),
        pageInfo?.hasNextPage ? h("option", { "data-more": part }, `All ${part}…`) : null))));
}

/** The path of a file or a directory, whose parts lead to the directories. `isFile`: the last part is a file. */
export function pathBar(project, place, ref, { isFile = false } = {}) {
  const names = place ? place.split("/") : [];
  const parts = [[project.name, folderAddress(project.fullPath, "", ref)], ...names.map((name, index) => {
    const here = names.slice(0, index + 1).join("/");
    return [name, isFile && index === names.length - 1 ? fileAddress(project.fullPath, here, ref) : folderAddress(project.fullPath, here, ref)];
  })];
  return h("nav.file-path", { "aria-label": "Path" }, h("ol", null,
    parts.map(([name, href], index) => h("li", null, h("a", { href, "aria-current": index === parts.length - 1 ? "page" : null }, name)))));
}
