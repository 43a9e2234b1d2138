// The history of a file or a directory: the commits of a branch that changed it.

import { h } from "../../dom.js";
import { empty, more, section } from "../../parts.js";
import { fileAddress, historyAddress } from "../../repository/addresses.js";
import { pathBar, refChoice, showFiles } from "../../repository/file_bar.js";
import { styles } from "../../repository/styles.js";
import { commitRow } from "../../rows.js";

export async function open(page) {
  const { path, at: place } = page.where;
  const given = page.query.get("ref") || null;
  const read = async (after) => {
    const { project } = await page.request("History", { path, ref: given, at: place, after });
    if (!project) throw page.missing("project");
    return project;
  };
  const [project] = await Promise.all([read(null), styles()]);
  const ref = project.branch?.name ?? given ?? project.defaultBranch;
  const list = h("ol.rows", { "data-walk": true });
  const none = h("p.quiet", null, "None of these commits changed it.");
  const add = ({ nodes, pageInfo }) => {
    list.append(...nodes.map(commitRow(path)));
    // A page examines a limited number of commits, and may find none of them.
    list.hidden = !list.childElementCount;
    none.hidden = !list.hidden;
    none.textContent = pageInfo.hasNextPage ? "None of these commits changed it. Earlier commits are on the next page." : "No commit changed it.";
    return pageInfo;
  };
  const connection = project.branch?.history;
  showFiles(page, project, { place, ref, heading: "History" },
    h("div.file-bar", null, refChoice(page, path, { branches: project.branches }, ref, (name) => historyAddress(path, place, name)),
      pathBar(project, place, ref, { isFile: true }),
      h("nav.file-links", { "aria-label": "More about this file" }, h("a", { href: fileAddress(path, place, ref) }, "Show it"))),
    connection
      ? section("History", null, list, none, more(add(connection), async (after) => add((await read(after)).branch.history), "Show earlier commits"))
      : empty(ref ? `There is no branch ${ref}` : "There are no commits yet", "The history of a file is that of a branch."));
}
