// A milestone: its progress, its issues and merge requests, and the form that changes it.

import { address } from "../address.js";
import { h } from "../dom.js";
import { form } from "../forms.js";
import { markdown } from "../markdown.js";
import { avatar, badge, section, symbol, labelOf } from "../parts.js";
import { projectCrumbs } from "../project/crumbs.js";
import { rows } from "../rows.js";
import { changing, dueWords, fieldsOf, overdue, progress, valuesOf } from "../work/milestone_parts.js";
import { styles } from "../work/styles.js";

export async function open(page) {
  const { path } = page.where;
  const [{ project }] = await Promise.all([page.request("Milestone", { path, iid: Number(page.where.number) }), styles()]);
  const milestone = project?.milestone;
  if (!milestone) throw page.missing("milestone");
  const all = address(path, "milestones");
  const due = dueWords(milestone);
  const isClosed = milestone.state === "CLOSED";
  const wrong = h("p.wrong", { role: "alert", hidden: true });

  page.title(milestone.title, projectCrumbs(project, ["Milestones", all]));
  page.show(
    h("article.reading.stack", null,
      h("div.head-line", null, h("h1", null, milestone.title), badge(isClosed ? "CLOSED" : "OPENED", isClosed ? "closed" : "active"), overdue(milestone),
        milestone.viewerCan.update ? h("div.actions", null, changing(page, milestone, wrong, (isDeleted) => (isDeleted ? page.go(all) : page.reload()))) : null),
      wrong,
      due ? h("p.quiet", null, `Due ${due}.`) : null,
      h("div.stack", null, progress(milestone)),
      milestone.descriptionHtml ? markdown(milestone.descriptionHtml) : null,
      milestone.viewerCan.update ? editing(page, milestone) : null,
      milestone.issues && section("Issues", allOf(path, "issues", milestone), rows(milestone.issues.nodes, item(path, "issues", "#", (each) => [each.state, labelOf(each.state), each.assignee]), "None yet.")),
      milestone.mergeRequests && section("Merge requests", allOf(path, "merge_requests", milestone, milestone.mergeRequests), rows(milestone.mergeRequests.nodes, item(path, "merge_requests", "!", (each) => [each.state === "MERGED" || each.state === "CLOSED" ? each.state : each.headCommit?.rollup?.state ?? "NONE", labelOf(each.state), each.author]), "None yet."))));
}

/** The form. Only what is changed is sent: a value of somebody else's change stays. */
function editing(page, milestone) {
  const before = valuesOf(milestone);
  return h("details.menu.triage", null, h("summary", null, "Edit"), h("div.card.settings", null, form("Edit the milestone", fieldsOf(page, milestone), {
    word: "Save", keep: page,
    async act(values) {
      const changed = Object.entries(valuesOf(values)).filter(([name, value]) => value !== before[name]);
      await page.mutate("UpdateMilestone", { input: { id: milestone.id, ...Object.fromEntries(changed) } });
      page.announce("Saved.");
      page.go(location.pathname, { replace: true });
    },
  })));
}

/** A link to the whole list, if only its beginning is shown. */
const allOf = (path, kind, { title, issues }, { totalCount, nodes } = issues) =>
  totalCount > nodes.length ? h("a", { href: `${address(path, kind)}?${new URLSearchParams({ milestone: title, state: "all" })}` }, `All ${totalCount}`) : null;

const item = (path, kind, mark, of) => (each) => {
  const [state, word, who] = of(each);
  return h("li.row", { "data-box": true },
    symbol(state, word),
    h("p.row-title", null, h("a", { href: address(path, kind, each.iid), "data-item": true }, each.title)),
    h("span.row-side", null, who ? avatar(who) : null, `${mark}${each.iid}`));
};
