// The head of the pages of a project: its name, its facts, the star, the clone URLs and the tabs.

import { address } from "../address.js";
import { h, replace } from "../dom.js";
import { showError } from "../errors.js";
import * as graph from "../graph.js";
import { copyButton, icon } from "../parts.js";
import { hasSettings } from "../settings/sections.js";
import { projectCrumbs } from "./crumbs.js";

/** Shows a part of a project. `project` has the fields of the fragment `head`. */
export function showProject(page, project, part, ...content) {
  const { namespace } = project;
  page.title(`${namespace.name} / ${project.name}`, projectCrumbs(project));
  page.show(head(page, project), tabs(project, part), content);
}

function head(page, project) {
  return h("header.head", null,
    h("div", null, h("div.head-line", null,
      h("h1", null, h("span.namespace", null, `${project.namespace.name} / `), project.name),
      h("span.tag", null, project.visibility.toLowerCase()),
      project.archived ? h("span.tag", null, "archived") : null,
      project.forkedFrom ? h("span.tag", null, "fork of ", h("a", { href: address(project.forkedFrom.fullPath) }, project.forkedFrom.fullPath)) : null),
    project.description ? h("p.quiet", null, project.description) : null),
    h("div.head-side", null, star(page, project),
      project.viewerCan.fork ? h("a.button", { href: address(project.fullPath, "fork") }, "Fork") : null, project.viewerCan.readCode ? clone(project) : null));
}

/** The button that stars the project for the viewer, and the number of stars, which leads to those who starred it. */
function star(page, { fullPath: path, starCount, viewerHasStarred }) {
  const wrong = h("p.wrong", { role: "alert", hidden: true });
  const button = h("button", { type: "button", onclick: change }, icon("star"), h("span", null, "Star"));
  const count = h("a", { href: address(path, "stars") });
  const show = () => {
    button.setAttribute("aria-pressed", String(viewerHasStarred));
    button.title = viewerHasStarred ? "Remove your star" : "Star this project";
    replace(count, starCount, h("span.unseen", null, starCount === 1 ? " star" : " stars"));
  };
  async function change() {
    wrong.hidden = true;
    try {
      const { project } = await graph.mutate("star", viewerHasStarred ? "Unstar" : "Star", { path }, { signal: page.signal });
      ({ starCount, viewerHasStarred } = project);
      show();
    } catch (error) {
      showError(wrong, error);
    }
  }
  show();
  return [h("div.clone.star", { role: "group", "aria-label": "Stars" }, button, count), wrong];
}

let server = null;
/** What the service offers, requested once. */
const serverInfo = () => (server ??= graph.request("shell", "Server").then(({ serverInfo: found }) => found, () => ((server = null), {})));

/** The clone URLs, one at a time; that of SSH only if the service offers it. */
function clone(project) {
  const shown = h("code", { tabindex: 0 });
  const [http, ssh] = [["HTTP", project.httpUrlToRepo], ["SSH", project.sshUrlToRepo]].map(([name, url]) =>
    h("button", { type: "button", "data-url": url, onclick: (event) => choose(event.target) }, name));
  const ways = [http];
  serverInfo().then(({ sshEnabled }) => sshEnabled && (ways.push(ssh), ssh.setAttribute("aria-pressed", "false"), http.after(ssh)));
  const choose = (way) => {
    for (const each of ways) each.setAttribute("aria-pressed", String(each === way));
    shown.textContent = shown.title = way.dataset.url;
  };
  choose(ways[0]);
  return h("div.clone", { role: "group", "aria-label": "Clone" }, ways, shown, copyButton(shown, "Copy the address"));
}

/** The parts of the project; `current` is undefined for the overview. */
function tabs(project, current) {
  const all = [
    [undefined, "Overview", true],
    ["files", "Files", project.viewerCan.readCode],
    ["commits", "Commits", project.viewerCan.readCode],
    ["branches", "Branches", project.viewerCan.readCode],
    ["tags", "Tags", project.viewerCan.readCode],
    ["builds", "Builds", project.viewerCan.readBuilds],
    ["dashboard", "Dashboard", project.viewerCan.readBuilds],
    ["environments", "Environments", project.viewerCan.readBuilds],
    ["merge_requests", "Merge requests", project.mergeRequestsEnabled],
    ["issues", "Issues", project.issuesEnabled],
    ["snippets", "Snippets", project.snippetsEnabled],
    ["activity", "Activity", true],
    ["settings", hasSettings(project) ? "Settings" : "Members", true],
  ];
  return h("nav.tabs", { "aria-label": "Parts of the project" },
    all.filter(([, , there]) => there).map(([name, word]) =>
      h("a", { href: address(project.fullPath, ...(name ? [name] : [])), "aria-current": name === current ? "page" : null }, word)));
}
