// A merge request: whether it can be merged, its commits and changes, its builds, its comments.

import { address } from "../address.js";
import { changes, counted } from "../diff.js";
import { answer, discussion, doing } from "../discussion.js";
import { h, replace } from "../dom.js";
import { markdown } from "../markdown.js";
import { ago, badge, icon, lasted, more, person, section, wordOf } from "../parts.js";
import { keepFocus, renewal, watch } from "../renewing.js";
import { buildRow, commitRow, issueRow, label, rows } from "../rows.js";
import { styles } from "../work/styles.js";
import { triage } from "../work/triage.js";
import { note } from "./issue.js";

const POLL = 4000;
const UNDECIDED = new Set(["PENDING", "RUNNING"]);

/** A value that changes when the checks of a commit change. */
const checks = (commit) => JSON.stringify([commit?.oid, commit?.rollup.state, commit?.builds.nodes.map(({ databaseId, status }) => [databaseId, status])]);

export async function open(page) {
  const { path } = page.where;
  const iid = Number(page.where.number);
  const about = { path, iid };
  const read = async (operation, variables = {}) => {
    const { project } = await page.ask(operation, { ...about, ...variables });
    if (!project?.mergeRequest) throw page.missing("merge request");
    return operation === "MergeRequest" ? { ...project.mergeRequest, project } : project.mergeRequest;
  };

  const [top, side, said, files] = [h("div.column"), h("div.column"), h("div"), h("div")];
  await styles();
  let request = null;
  let talk = null;
  const soon = renewal(page, async () => {
    const before = request.headCommit?.oid;
    request = await read("MergeRequest");
    keepFocus(top, () => replace(top, above(page, request, act)));
    keepFocus(side, () => replace(side, beside(request, read)));
    if (request.headCommit?.oid !== before) await showChanges();
    await talk?.renew();
  });
  await page.follow("Changed", { path }, {
    event({ mergeRequestChanged: { mergeRequest, to } }) {
      if (mergeRequest.iid !== iid) return;
      if (request && to !== request.state) page.say(`The merge request is ${wordOf(to)}.`);
      soon();
    },
    gap: soon,
  });
  // Browsers have six connections to a service for all tabs, so a page follows one stream and polls running builds.
  watch(page, POLL, async () => {
    if (!UNDECIDED.has(request?.headCommit?.rollup.state)) return;
    if (checks((await read("Standing")).headCommit) !== checks(request.headCommit)) soon();
  });

  const act = async (operation, variables) => {
    await page.change(operation, { ...about, ...variables });
    soon();
  };
  const showChanges = async () => replace(files, changes((await read("Changes")).changes));

  request = await read("MergeRequest");
  const { project } = request;
  page.title(`!${iid} ${request.title}`, [[project.name, address(project.fullPath)], ["merge requests", address(project.fullPath, "merge_requests")]]);
  replace(top, above(page, request, act));
  replace(side, beside(request, read));
  replace(files, h("p.quiet", null, "Loading the files…"));
  page.show(
    h("div.columns", null,
      h("div.column", null, top, project.viewerCan.createMergeRequest ? triage(page, { ...about, operation: "UpdateMergeRequest", record: () => request, done: soon }) : null, section("Comments", null, said), section("Changes", null, files)),
      side));

  const unless = (element) => (error) => error.name !== "AbortError" && replace(element, h("p.wrong", { role: "alert" }, error.message));
  await Promise.all([
    (async () => {
      talk = await discussion(async (after) => (await read("Notes", { after })).notes, note);
      const can = request.viewerCan;
      replace(said, talk.element, can.comment ? answer((body) => page.change("Comment", { ...about, body }), () => talk.renew(), { page }) : null);
    })().catch(unless(said)),
    showChanges().catch(unless(files)),
  ]);
}

// Header and merge status

function above(page, request, act) {
  const { project: { fullPath: path }, sourceProject } = request;
  const fork = sourceProject && sourceProject.fullPath !== path ? `${sourceProject.fullPath}:` : "";
  return [
    h("header.work-head", null,
      h("div.head-line", null, h("h1", null, request.title, " ", h("span.quiet", null, `!${request.iid}`)),
        request.viewerCan.update ? h("div.actions", null, h("a.button", { href: address(path, "merge_requests", request.iid, "edit") }, "Edit")) : null),
      h("div.facts", null, badge(request.state), person(request.author),
        h("span.ref", { title: "source and target" }, icon("branch"), `${fork}${request.sourceBranch} → ${request.targetBranch}`),
        ago(request.createdAt),
        request.assignee ? h("span", null, "assigned to ", person(request.assignee)) : null,
        request.milestone ? h("a", { href: address(path, "milestones", request.milestone.iid) }, request.milestone.title) : null,
        request.labelNodes.map(label),
        request.diffStat ? counted(request.diffStat) : null)),
    standing(page, request, act),
    request.descriptionHtml ? h("div.card", null, markdown(request.descriptionHtml)) : null,
  ];
}

const BLOCKERS = {
  CONFLICT: ({ targetBranch }) => `It conflicts with ${targetBranch}: merge ${targetBranch} into the branch, or rebase it.`,
  NO_COMMITS: ({ targetBranch }) => `It has no commits that ${targetBranch} does not have.`,
  WORK_IN_PROGRESS: () => "It is marked as work in progress (WIP) in its title.",
  BUILD_RUNNING: () => "Builds of its newest commit are still running.",
  BUILD_FAILED: () => "Builds of its newest commit failed.",
  NO_PERMISSION: ({ targetBranch }) => `You do not have permission to merge into ${targetBranch}.`,
};

function standing(page, request, act) {
  const { state, blockers, headCommit, viewerCan: can, project: { fullPath: path } } = request;
  const wrong = h("p.wrong", { role: "alert", hidden: true });
  if (state === "MERGED")
    return h("div.merge-status", { "data-state": "MERGED" }, badge("MERGED"),
      h("p", null, request.mergedBy ? ["by ", person(request.mergedBy), " "] : null, request.mergedAt ? ago(request.mergedAt) : null,
        request.mergeCommit ? [" as ", h("a", { href: address(path, "commit", request.mergeCommit.oid) }, h("code", null, request.mergeCommit.shortOid))] : null));
  if (state === "CLOSED")
    return h("div.merge-status", { "data-state": "CLOSED" }, badge("CLOSED"), h("p", null, request.closedAt ? ago(request.closedAt) : null), wrong,
      can.update ? h("div.actions", null, doing("button", "Reopen", wrong, () => act("Change", { event: "REOPEN" }))) : null);

  const only = (word) => blockers.length === 1 && blockers[0] === word;
  const remove = h("input", { type: "checkbox", id: "remove" });
  const accept = (whenBuilt) => () => act("Accept", { sha: headCommit.oid, whenBuilt, remove: remove.checked });
  const buttons = [];
  if (can.merge && headCommit) {
    if (!blockers.length) buttons.push(doing("button.primary", "Merge", wrong, accept(false)));
    else if (only("BUILD_RUNNING") && !request.mergeWhenBuildSucceeds) buttons.push(doing("button.primary", "Merge when the builds pass", wrong, accept(true)));
    else if (only("BUILD_FAILED")) buttons.push(doing("button", "Merge despite failed builds", wrong, accept(false)));
  }
  const merging = buttons.length > 0;
  if (can.cancelMerge) buttons.push(doing("button", "Cancel automatic merge", wrong, () => act("CancelAutomatic")));
  if (can.update) buttons.push(doing("button", "Close", wrong, () => act("Change", { event: "CLOSE" })));
  const removable = merging && request.sourceBranch !== request.sourceProject?.defaultBranch;
  return h("div.merge-status", { "data-state": blockers.length ? (only("BUILD_RUNNING") ? "RUNNING" : "FAILED") : "SUCCESS" },
    request.mergeWhenBuildSucceeds ? h("p", null, h("strong", null, "It will be merged automatically when its builds pass.")) : null,
    blockers.length
      ? h("ul.blockers", { "aria-label": "Blockers" }, blockers.map((each) => h("li", null, BLOCKERS[each]?.(request) ?? each.toLowerCase())))
      : h("p", null, h("strong", null, "It can be merged.")),
    wrong,
    removable ? h("label.check", { for: "remove" }, remove, `Delete ${request.sourceBranch} after the merge`) : null,
    buttons.length ? h("div.actions", null, buttons) : null);
}

// Sidebar

function beside(request, read) {
  const { headCommit, commits, closesIssues, project: { fullPath: path }, sourceProject } = request;
  const rollup = headCommit?.rollup;
  const from = sourceProject?.fullPath ?? path;
  return [
    headCommit
      ? section("Builds", rollup && rollup.state !== "NONE" ? h("span.part-side", null, badge(rollup.state), lasted(rollup)) : null,
          rows(headCommit.builds.nodes, buildRow(from), "There are no builds of its newest commit."))
      : null,
    section("Commits", null, commits ? commitList(commits, from, read) : h("p.quiet", null, "The repository cannot be read.")),
    closesIssues.nodes.length ? section("Closes", null, rows(closesIssues.nodes, (issue) => issueRow(issue.project.fullPath)(issue), "")) : null,
  ];
}

function commitList(commits, path, read) {
  const list = rows(commits.nodes, commitRow(path), "It has no commits.");
  return [list, more(commits.pageInfo, async (after) => {
    const next = (await read("Commits", { after })).commits;
    list.append(...next.nodes.map(commitRow(path)));
    return next.pageInfo;
  })];
}
