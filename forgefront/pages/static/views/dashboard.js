// The dashboard of a project or a group: charts of its builds, branches and merge requests over a range of time.

import * as filters from "../dashboards/filters.js";
import { charts } from "../dashboards/charts.js";
import { styles } from "../dashboards/styles.js";
import { h } from "../dom.js";
import { showGroup } from "../group/head.js";
import { showProject } from "../project/head.js";
import { watch } from "../renewing.js";
import { rotate, screenSeconds } from "../dashboards/screen.js";

const RENEWED = 60_000;

export async function open(page) {
  const { path, name } = page.where;
  const chosen = filters.read(page.query);
  const [own] = await Promise.all([path ? project(page, path) : group(page, name), styles()]);
  const form = filters.form(chosen, { branches: own.branches, change });
  const all = charts(page, own, form.offer);
  const grid = h("div.charts", null, all.map(({ element }) => element));
  const seconds = screenSeconds(page);

  own.show(h("header.charts-head", null, form.element, h("a.button", { href: `${location.pathname}${filters.toQuery(chosen, { screen: "30" })}`, title: "Wall mode for a screen: no controls, pages rotate" }, "Screen")), grid);
  await load();
  if (seconds) rotate(page, seconds, grid, () => all.map(({ element }) => element));
  watch(page, RENEWED, load);

  async function load() {
    const common = { ...filters.variables(chosen, Date.now()), chosen, path: own.path, answers: new Map() };
    await Promise.all(all.map((each) => each.load({ ...common, sent: each.sent(common) })));
  }

  function change() {
    page.setAddress(`${location.pathname}${filters.toQuery(chosen, seconds ? { screen: String(seconds) } : {})}`);
    load().then(() => page.announce("The charts have changed."));
  }
}

async function project(page, path) {
  const { project } = await page.request("ProjectDashboardPage", { path });
  if (!project) throw page.missing("project");
  return { kind: "project", path: project.fullPath, branches: project.branches?.nodes.map(({ name }) => name), show: (...content) => showProject(page, project, "dashboard", content) };
}

async function group(page, path) {
  const { group } = await page.request("GroupDashboardPage", { path });
  if (!group) throw page.missing("group");
  return {
    kind: "group", path: group.path,
    show: (...content) => showGroup(page, group, "dashboard", content),
  };
}
