// The milestones of a project with their progress, and the form of a new one.

import { address } from "../../address.js";
import { h, replace } from "../../dom.js";
import { form } from "../../forms.js";
import { symbol } from "../../parts.js";
import { showProject } from "../../project/head.js";
import { entry, listOf } from "../../project/lists.js";
import { changing, dueWords, fieldsOf, overdue, progress, valuesOf } from "../../work/milestone_parts.js";
import { styles } from "../../work/styles.js";

const STATES = { active: ["active", ["ACTIVE"]], closed: ["closed", ["CLOSED"]], all: ["all", null] };

export async function open(page) {
  await styles();
  const { path } = page.where;
  const asked = page.query.get("state");
  const state = Object.hasOwn(STATES, asked ?? "") ? asked : "active";
  const states = STATES[state][1];
  const chips = h("nav.chips", { "aria-label": "Filter by state" });
  const { project, element, renew } = await listOf(page, {
    operation: "Milestones", connection: "milestones", name: "Milestones", none: state === "all" ? "No milestone yet." : `No ${state} milestone.`,
    variables: { filter: states && { state: states } }, item: (milestone) => item(page, milestone, () => page.reload()),
  });
  replace(chips, Object.entries(STATES).map(([name, [word]]) =>
    h("a", { href: `${address(path, "milestones")}${name === "active" ? "" : `?state=${name}`}`, "aria-current": name === state ? "true" : null }, word, h("b", null, String(project[name].totalCount)))));
  showProject(page, project, "issues", [
    h("h2.unseen", null, "Milestones"),
    h("div.actions.spread.list-head", null, chips, h("a.button", { href: address(path, "labels") }, "Labels")),
    element,
    project.can.adminMilestones ? h("details.menu.triage", { open: page.query.has("new") }, h("summary", null, "New milestone"), h("div.card.settings", null, creating(page, path, renew))) : null,
  ]);
}

function item(page, milestone, renew) {
  const { iid, title, state, viewerCan, mergeRequests } = milestone;
  const due = dueWords(milestone);
  const wrong = h("p.wrong", { role: "alert", hidden: true });
  return entry(
    [symbol(state === "CLOSED" ? "CLOSED" : "OPENED", state === "CLOSED" ? "closed" : "active"),
      h("a", { href: address(page.where.path, "milestones", iid), "data-item": true }, title), overdue(milestone), wrong],
    [progress(milestone), mergeRequests?.totalCount ? h("span", null, mergeRequests.totalCount === 1 ? "1 merge request" : `${mergeRequests.totalCount} merge requests`) : null,
      due ? h("span", null, `due ${due}`) : null],
    viewerCan.update ? changing(page, milestone, wrong, renew) : null);
}

const creating = (page, path) =>
  form("New milestone", fieldsOf(page), {
    word: "Create the milestone", keep: page,
    async act(values) {
      const { milestone } = await page.mutate("CreateMilestone", { input: { projectPath: path, ...valuesOf(values) } });
      page.announce(`The milestone ${milestone.title} is created.`);
      page.go(address(path, "milestones", milestone.iid));
    },
  });
