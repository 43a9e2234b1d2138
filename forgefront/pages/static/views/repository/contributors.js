// The people whose commits are in a branch.

import { h } from "../../dom.js";
import { avatar, empty, section } from "../../parts.js";
import { contributorsAddress } from "../../repository/addresses.js";
import { refChoice, showFiles } from "../../repository/file_bar.js";
import { styles } from "../../repository/styles.js";

export async function open(page) {
  const { path } = page.where;
  const given = page.query.get("ref") || null;
  const [{ project }] = await Promise.all([page.request("Contributors", { path, ref: given }), styles()]);
  if (!project) throw page.missing("project");
  const ref = given ?? project.defaultBranch;
  const { authors = null } = project.contributors ?? {};
  const total = (authors ?? []).reduce((sum, { commits }) => sum + commits, 0);
  showFiles(page, project, { ref, heading: "Contributors" },
    h("div.file-bar", null, refChoice(page, path, project, ref, (name) => contributorsAddress(path, name))),
    !authors ? empty("The contributors cannot be shown", project.viewerCan.readCode ? `There is no branch, tag or commit ${ref}.` : "You can see this project, but not its code.")
      : section("Contributors", h("span.quiet", null, `${total} ${total === 1 ? "commit" : "commits"} without merges`),
        authors.length ? h("ol.rows", { "data-walk": true }, authors.map((author) => row(author, total))) : h("p.quiet", null, "There are no commits yet.")));
}

const row = ({ name, email, commits }, total) =>
  h("li.row", { "data-box": true }, avatar(null, name || email), h("p.row-title", null, name || email),
    h("span.row-side", null, `${commits} ${commits === 1 ? "commit" : "commits"}`, h("span", null, `${Math.round((100 * commits) / total)} %`)),
    h("p.row-meta", null, h("span", null, email)));
