// A project: its newest commits with their builds and merge requests beside what is open, and each of these as a list of its own.

import { address } from "../address.js";
import { h, replace } from "../dom.js";
import { ago, avatar, badge, empty, icon, lasted, more, section, wordOf } from "../parts.js";
import { buildRow, commitRow, issueRow, mergeRequestRow, rows } from "../rows.js";

const PAUSE = 400;

const OPEN = ["OPENED", "REOPENED"];
const LISTS = {
  commits: { operation: "Commits", row: commitRow, connection: "commits", none: "No commits." },
  builds: {
    operation: "Builds", row: buildRow, connection: "builds", none: "No build is like this.", live: true,
    filter: "status", choices: { "": null, FAILED: ["FAILED"], RUNNING: ["RUNNING"], PENDING: ["PENDING"], SUCCESS: ["SUCCESS"], CANCELED: ["CANCELED"] },
  },
  merge_requests: {
    operation: "MergeRequests", row: mergeRequestRow, connection: "mergeRequests", none: "No merge request is like this.", live: true,
    filter: "state", choices: { OPENED: OPEN, MERGED: ["MERGED"], CLOSED: ["CLOSED"], "": null },
  },
  issues: {
    operation: "Issues", row: issueRow, connection: "issues", none: "No issue is like this.",
    filter: "state", choices: { OPENED: OPEN, CLOSED: ["CLOSED"], "": null },
  },
};

export async function open(page) {
  const { path, section: name } = page.where;
  const list = LISTS[name];
  const body = h("div");
  let renewing = null;
  let renew = () => {};
  const soon = () => (renewing ??= setTimeout(() => ((renewing = null), page.signal.aborted || renew()), PAUSE));

  await page.follow("Changes", { path }, {
    event: ({ buildChanged: { build, to } }) => {
      page.say(`${build.name} on ${build.ref}: ${wordOf(to)}.`);
      soon();
    },
    gap: soon,
  });
  const { project, show } = list ? await listed(page, list, path) : await overview(page, path);

  page.title(`${project.namespace.name} / ${project.name}`, [
    [project.namespace.name, project.namespace.kind === "GROUP" ? address("groups", project.namespace.path) : address("u", project.namespace.path)],
    [project.name, address(project.fullPath)],
  ]);
  replace(body, show(project));
  renew = async () => {
    try {
      const next = list ? await listed(page, list, path) : await overview(page, path);
      keepFocus(body, () => replace(body, next.show(next.project)));
    } catch (error) {
      if (error.name !== "AbortError") soon();
    }
  };
  page.show(head(project), tabs(project, name), body);
}

/** Has the link that had the focus have it again when its row was made anew. */
function keepFocus(body, change) {
  const here = body.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
  change();
  if (here) [...body.querySelectorAll("a[href]")].find((each) => each.getAttribute("href") === here)?.focus({ preventScroll: true });
}

// The parts above

function head(project) {
  return h("header.head", null,
    h("div.head-line", null,
      h("h1", null, h("span.namespace", null, `${project.namespace.name} / `), project.name),
      h("span.tag", null, project.visibility.toLowerCase()),
      project.archived ? h("span.tag", null, "archived") : null,
      project.forkedFrom ? h("span.tag", null, "fork of ", h("a", { href: address(project.forkedFrom.fullPath) }, project.forkedFrom.fullPath)) : null),
    project.description ? h("p.quiet", null, project.description) : null,
    project.viewerCan.readCode ? clone(project) : null);
}

/** The addresses to clone from, one at a time. */
function clone(project) {
  const ways = { HTTP: project.httpUrlToRepo, SSH: project.sshUrlToRepo };
  const shown = h("code", { tabindex: 0, title: ways.HTTP }, ways.HTTP);
  const way = h("button.quiet-button", { type: "button", title: "The other address" }, "HTTP");
  const copy = h("button", { type: "button" }, icon("copy"), "Copy");
  way.addEventListener("click", () => {
    way.textContent = way.textContent === "HTTP" ? "SSH" : "HTTP";
    shown.textContent = shown.title = ways[way.textContent];
  });
  copy.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(shown.textContent);
      copy.lastChild.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(shown);
      copy.lastChild.textContent = "Selected";
    }
    setTimeout(() => (copy.lastChild.textContent = "Copy"), 2000);
  });
  return h("div.clone", null, way, shown, copy);
}

function tabs(project, current) {
  const all = [
    [undefined, "Overview", true],
    ["commits", "Commits", project.viewerCan.readCode],
    ["builds", "Builds", project.viewerCan.readBuilds],
    ["merge_requests", "Merge requests", project.mergeRequestsEnabled],
    ["issues", "Issues", project.issuesEnabled],
  ];
  return h("nav.tabs", { "aria-label": "Parts of the project" },
    all.filter(([, , there]) => there).map(([name, word]) =>
      h("a", { href: address(project.fullPath, ...(name ? [name] : [])), "aria-current": name === current ? "page" : null }, word)));
}

// What is below them

async function overview(page, path) {
  const { project } = await page.ask("Overview", { path });
  if (!project) throw page.missing("project");
  return { project, show };
}

function show(project) {
  const { fullPath: path } = project;
  const target = project.branch?.target;
  const all = (name, count) => h("a", { href: address(path, name) }, count === undefined ? "All" : `All ${count}`);
  return [
    target ? standing(project.branch, target, path) : null,
    h("div.columns", null,
      h("div.column", null,
        project.viewerCan.readCode
          ? section("Commits", all("commits"), project.commits ? rows(project.commits.nodes, commitRow(path), "No commit yet.") : h("p.quiet", null, "The repository cannot be read."))
          : empty("No view of the code", "You see the issues of this project, not its code.")),
      h("div.column", null,
        project.mergeRequests ? section("Open merge requests", all("merge_requests", undefined), rows(project.mergeRequests.nodes, mergeRequestRow(path), "None is open.")) : null,
        project.builds ? section("Newest builds", all("builds", project.builds.totalCount), rows(project.builds.nodes, buildRow(path), "Nothing was built yet.")) : null,
        project.issues ? section("Open issues", all("issues", undefined), rows(project.issues.nodes, issueRow(path), "None is open.")) : null)),
  ];
}

/** How the default branch stands, in one line. */
function standing(branch, target, path) {
  const { rollup } = target;
  return h("p.standing", { "data-state": rollup.state },
    badge(rollup.state),
    h("span.ref", null, icon("branch"), branch.name),
    h("a", { href: address(path, "commit", target.shortOid) }, target.title),
    h("span.person", null, avatar(target.author, target.authorName), h("span", null, target.author?.name ?? target.authorName)),
    ago(target.committedAt), lasted(rollup));
}

async function listed(page, list, path) {
  const chosen = list.filter ? chosenOf(page, list) : null;
  const variables = { path, ...(list.filter && { [list.filter]: list.choices[chosen] }) };
  const read = async (after) => {
    const { project } = await page.ask(list.operation, { ...variables, after });
    if (!project) throw page.missing("project");
    return project;
  };
  return {
    project: await read(null),
    show(project) {
      const first = project[list.connection];
      if (!first) return empty("Nothing to see here", "This part of the project is not shown to you, or cannot be read.");
      const shown = rows(first.nodes, list.row(path), list.none);
      return [
        list.filter ? chips(page, list, chosen) : null,
        shown,
        more(first.pageInfo, async (after) => {
          const next = (await read(after))[list.connection];
          shown.append(...next.nodes.map(list.row(path)));
          return next.pageInfo;
        }),
      ];
    },
  };
}

const chosenOf = (page, list) => {
  const wanted = page.query.get(list.filter)?.toUpperCase();
  const all = Object.keys(list.choices);
  return wanted === "ALL" ? "" : all.includes(wanted) ? wanted : all[0];
};

const chips = (page, list, chosen) =>
  h("nav.chips", { "aria-label": "Only those in this state" },
    Object.keys(list.choices).map((state) =>
      h("a", { href: `${location.pathname}?${list.filter}=${(state || "all").toLowerCase()}`, "aria-current": state === chosen ? "true" : null }, state ? wordOf(state) : "all")));
