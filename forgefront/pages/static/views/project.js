// A project: its newest commits with their builds, its open merge requests and issues, full lists of commits and builds, its activity and its stars.

import { address } from "../address.js";
import { h, replace } from "../dom.js";
import { markdown } from "../markdown.js";
import { ago, avatar, badge, empty, icon, lasted, more, section, labelOf } from "../parts.js";
import { BUILD_LIST, buildFilters, chips, chosenOf, commitBuildsRow, narrowedBy } from "../project/build_lists.js";
import { showProject } from "../project/head.js";
import { keepFocus, renewal } from "../renewing.js";
import { activityRow, buildRow, commitRow, issueRow, mergeRequestRow, rows, starRow } from "../rows.js";

/** The builds of each state, which are counters; with further filters only the rows that are shown are counted. */
const COUNTS = {
  counted: (narrowed) => ({ counted: !narrowed.length }),
  counts: (project, chosen) => ({
    ...Object.fromEntries(Object.entries(project).filter(([, each]) => Object.keys(each ?? {}).join() === "totalCount").map(([name, each]) => [name, each.totalCount])),
    [(chosen || "all").toLowerCase()]: project.builds?.totalCount,
  }),
};

const LISTS = {
  commits: { operation: "Commits", row: commitRow, connection: "commits", none: "There is no such branch, tag or commit.", refs: true },
  builds: {
    ...BUILD_LIST, operation: "Builds", row: buildRow, connection: "builds", none: "No matching builds.", fields: buildFilters, ...COUNTS, byCommit: { counted: null, counts: null, operation: "CommitBuilds", row: commitBuildsRow, connection: "commits", tip: (query) => ({ tip: query.get("ref") }) },
  },
  activity: { operation: "Activities", row: activityRow, connection: "activities", none: "No activity yet." },
  stars: { operation: "Stars", row: () => starRow, connection: "stars", none: "Nobody has starred this project yet." },
};

export async function open(page) {
  const { path, section: name } = page.where;
  const body = h("div");
  /** Whether further rows were loaded: then they are not renewed, since outdated rows are better than rows that move under the reader. */
  let isExtended = false;
  const list = LISTS[name]?.byCommit && page.query.get("by") === "commit" ? { ...LISTS[name], ...LISTS[name].byCommit } : LISTS[name];
  const read = () => (name ? listed(page, list, path, () => (isExtended = true)) : overview(page, path));
  await followed(page, path, name, renewal(page, renew));
  const { project, head = null, show: build } = await read();

  replace(body, build(project));
  const { state = "FINISHED" } = project.repositoryImport ?? {};
  const progress = state === "FINISHED" ? null : await (await import("../project/import_progress.js")).importProgress(page, path);
  const readme = h("div.readme");
  // Outside of what events renew, so that what is being typed or chosen stays.
  const offer = name ? null : (await import("../project/push_offer.js")).pushOffer(page, path);
  showProject(page, project, name, progress, offer, list?.fields?.(page), head, body, readme);
  if (!name && project.viewerCan.readCode && project.branch) showReadme(page, path, readme);

  async function renew() {
    if (isExtended) return;
    const next = await read();
    if (isExtended) return;
    keepFocus(body, () => replace(body, next.show(next.project)));
  }
}

/** Shows README.md of the default branch, if there is one. */
function showReadme(page, path, slot) {
  page.request("Readme", { path }).then(({ project }) => {
    const html = project?.blob?.html;
    if (html) replace(slot, section("README.md", null, h("div.card", null, markdown(html))));
  }).catch(() => {});
}

/** Follows events of the shown objects. */
async function followed(page, path, name, soon) {
  const announce = (words) => ({
    event(data) {
      const [change] = Object.values(data);
      // Equal states: a title, a comment or the like has changed.
      if (change.from !== change.to) page.announce(words(change));
      soon();
    },
    gap: soon,
  });
  const streams = [];
  if (!["activity", "stars"].includes(name)) streams.push(page.follow("Changes", { path }, announce(({ build, to }) => `${build.name} on ${build.ref}: ${labelOf(to)}.`)));
  if (!name || name === "commits" || name === "activity") streams.push(page.follow("Heads", { path }, { event: soon, gap: soon }));
  if (!name || name === "activity") streams.push(page.follow("Requests", { path }, announce(({ mergeRequest, to }) => `Merge request ${mergeRequest.iid}, ${mergeRequest.title}: ${labelOf(to)}.`)));
  await Promise.all(streams);
}

// Sections

async function overview(page, path) {
  const { project } = await page.request("Overview", { path });
  if (!project) throw page.missing("project");
  const isEmpty = project.viewerCan.readCode && project.commits && !project.commits.nodes.length;
  const { firstPush } = isEmpty ? await import("../project/first_push.js") : {};
  return { project, show: () => show(project, firstPush) };
}

function show(project, firstPush) {
  const { fullPath: path, branch, mergeRequests, builds, issues, viewerCan } = project;
  const all = (name, count) => h("a", { href: address(path, name) }, count ? `All ${count}` : "All");
  return [
    branch?.target ? standing(branch, path) : null,
    h("div.columns", null,
      h("div.column", null,
        viewerCan.readCode
          ? firstPush ? firstPush(project) : section("Commits", all("commits"), project.commits ? rows(project.commits.nodes, commitRow(path)) : h("p.quiet", null, "The repository cannot be read."))
          : empty("No access to the code", "You can see the issues of this project, but not its code.")),
      h("div.column", null,
        mergeRequests ? section("Open merge requests", all("merge_requests", mergeRequests.totalCount), rows(mergeRequests.nodes, mergeRequestRow(path), "None open.")) : null,
        builds ? section("Newest builds", all("builds", builds.totalCount), rows(builds.nodes, buildRow(path, { brief: true }), "No builds yet.")) : null,
        issues ? section("Open issues", all("issues", issues.totalCount), rows(issues.nodes, issueRow(path), "None open.")) : null)),
  ];
}

/** The state of the default branch: its newest commit, and since when the state is the same. */
function standing({ name, target, health }, path) {
  const { rollup } = target;
  const state = rollup?.state ?? "NONE";
  return h("section.standing", { "data-state": state, "aria-label": `The branch ${name}` },
    h("p", null, badge(state), h("span.ref", null, icon("branch"), name), commitLink(path, target, target.title), whoOf(target), ago(target.committedAt), rollup ? lasted(rollup) : null),
    health?.since ? h("p", null, health.state === "FAILED" ? broken(health, target, path) : h("span", null, "Passing since ", ago(health.since), ".")) : null);
}

const commitLink = (path, { shortOid }, text) => h("a", { href: address(path, "commit", shortOid) }, text);
const whoOf = ({ author, authorName }) => h("span.person", null, avatar(author, authorName), h("span", null, author?.name ?? authorName));

/** Since when it fails, by which commit, and how many other commits may be the cause. */
function broken({ since, firstBad, lastGreen, suspects }, target, path) {
  const others = (suspects.totalCount ?? 1) - 1;
  const by = firstBad?.shortOid === target.shortOid
    ? h("span", null, others > 0 ? `by this commit or one of ${others} before it` : "by this commit")
    : firstBad && [h("span", null, others > 0 ? `by one of ${others + 1} commits up to ` : "by ", commitLink(path, firstBad, firstBad.title)), whoOf(firstBad)];
  return [
    h("span", null, "Failing since ", ago(since)),
    by,
    lastGreen ? h("span", null, "last passing: ", commitLink(path, lastGreen, h("code", null, lastGreen.shortOid))) : null,
  ];
}

async function listed(page, list, path, extended) {
  const chosen = list.filter ? chosenOf(page, list) : null;
  const { names: narrowed, variables: further } = narrowedBy(page, list);
  const variables = { path, ...further, ...list.counted?.(narrowed), ...(list.filter && { [list.filter]: list.choices[chosen] }), ...list.tip?.(page.query), ...(list.refs && { ref: page.query.get("ref") }) };
  const read = async (after) => {
    const { project } = await page.request(list.operation, { ...variables, after });
    if (!project) throw page.missing("project");
    return project;
  };
  const { downloads } = list.refs ? await import("../project/downloads.js") : {};
  const project = await read(null);
  return {
    project,
    head: list.refs && project[list.connection] ? h("div.actions.start.spread", null, branches(page, project), downloads(page, path, page.query.get("ref") ?? project.defaultBranch)) : null,
    show(project) {
      const first = project[list.connection];
      if (!first) return empty("Nothing to see here", "You may not see this part of the project, or it cannot be read.");
      const shown = rows(first.nodes, list.row(path), list.none);
      return [
        list.filter ? chips(page, list, chosen, narrowed, list.counts?.(project, chosen)) : null,
        shown,
        more(first.pageInfo, async (after) => {
          extended();
          const next = (await read(after))[list.connection];
          shown.append(...next.nodes.map(list.row(path)));
          return next.pageInfo;
        }),
      ];
    },
  };
}

/** The ref whose history is shown: a branch, or the ref in the address. */
function branches(page, project) {
  const shown = page.query.get("ref") ?? project.defaultBranch;
  const names = (project.branches?.nodes ?? []).map(({ name }) => name);
  if (!shown || (names.length < 2 && names.includes(shown))) return null;
  const all = names.includes(shown) ? names : [shown, ...names];
  return h("p.chips", null,
    h("label.unseen", { for: "ref" }, "Branch"),
    h("select", { id: "ref", onchange: (event) => page.go(`${location.pathname}?ref=${encodeURIComponent(event.target.value)}`) },
      all.map((name) => h("option", { value: name, selected: name === shown }, name))));
}
