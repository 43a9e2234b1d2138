// A milestone: its progress, and its open issues and merge requests.

import { address } from "../address.js";
import { h } from "../dom.js";
import { markdown } from "../markdown.js";
import { avatar, badge, section, symbol, wordOf } from "../parts.js";
import { rows } from "../rows.js";

export async function open(page) {
  const { path } = page.where;
  const { project } = await page.ask("Milestone", { path, iid: Number(page.where.number) });
  const milestone = project?.milestone;
  if (!milestone) throw page.missing("milestone");
  const due = milestone.dueDate ? new Date(`${milestone.dueDate}T00:00`).toLocaleDateString(undefined, { dateStyle: "long" }) : null;
  // Due on a day means until its end, where the reader is.
  const isOverdue = due && milestone.state !== "CLOSED" && new Date(`${milestone.dueDate}T23:59:59`) < new Date();
  const filled = h("span", { "data-state": "SUCCESS" });
  filled.style.width = `${milestone.percentComplete ?? 0}%`;

  page.title(milestone.title, [[path, address(path)]]);
  page.show(
    h("article.reading.stack", null,
      h("div.head-line", null, h("h1", null, milestone.title), badge(milestone.state === "CLOSED" ? "CLOSED" : "OPENED", milestone.state === "CLOSED" ? "closed" : "active"), isOverdue ? h("span.badge", { "data-state": "FAILED" }, "overdue") : null),
      h("p.quiet", null, due ? `Due ${due}. ` : null, milestone.percentComplete === null ? null : `${milestone.closedIssuesCount} of ${milestone.closedIssuesCount + milestone.openIssuesCount} issues are closed.`),
      h("span.bar", null, filled),
      milestone.descriptionHtml ? markdown(milestone.descriptionHtml) : null,
      section("Issues", null, rows(milestone.issues.nodes, item(path, "issues", "#", (each) => [each.state, wordOf(each.state), each.assignee]), "None yet.")),
      section("Merge requests", null, rows(milestone.mergeRequests.nodes, item(path, "merge_requests", "!", (each) => [each.state === "MERGED" || each.state === "CLOSED" ? each.state : each.headCommit?.rollup.state ?? "NONE", wordOf(each.state), each.author]), "None yet."))));
}

const item = (path, kind, mark, of) => (each) => {
  const [state, word, who] = of(each);
  return h("li.row", { "data-box": true },
    symbol(state, word),
    h("p.row-title", null, h("a", { href: address(path, kind, each.iid), "data-item": true }, each.title)),
    h("span.row-side", null, who ? avatar(who) : null, `${mark}${each.iid}`));
};
