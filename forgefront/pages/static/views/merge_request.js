// A merge request: its discussion, commits, builds and changes, and whether it can be merged. The address names the tab.

import { address } from "../address.js";
import { counted } from "../diff.js";
import { answer, discussion } from "../discussion.js";
import { h, replace } from "../dom.js";
import { replaceByError } from "../errors.js";
import { markdown } from "../markdown.js";
import { ago, badge, icon, lasted, more, person, section, labelOf } from "../parts.js";
import { projectCrumbs } from "../project/crumbs.js";
import { keepFocus, renewal, renewSlowly, watch } from "../renewing.js";
import { changes, fileReader } from "../review/changes.js";
import { lineThreads } from "../review/line_threads.js";
import { mergeBox } from "../review/merge_box.js";
import { threads, unresolvedOnly } from "../review/threads.js";
import { newLine, newerThan, sinceChoice, visit } from "../review/visits.js";
import { buildRow, commitRow, issueRow, label, rows } from "../rows.js";
import { sheet } from "../styles/sheets.js";
import { goToNote, note, showNotes } from "../work/notes.js";
import { triage } from "../work/triage.js";

const POLL = 4000;
const UNDECIDED = new Set(["PENDING", "RUNNING"]);
const TABS = { discussion: showDiscussion, commits: showCommits, builds: showBuilds, changes: showChanges };

/** A value that changes when the checks of a commit change. */
const checks = (commit) => JSON.stringify([commit?.oid, commit?.rollup?.state, commit?.builds?.nodes.map(({ databaseId, status }) => [databaseId, status])]);

export async function open(page) {
  const { path, tab = "discussion" } = page.where;
  const iid = Number(page.where.number);
  const about = { path, iid };
  const read = async (operation, variables = {}) => {
    const { project } = await page.request(operation, { ...about, ...variables });
    if (!project?.mergeRequest) throw page.missing("merge request");
    return operation === "MergeRequest" ? { ...project.mergeRequest, project } : project.mergeRequest;
  };

  const [top, strip, body] = [h("div.column"), h("div.tab-strip"), h("div.tab-body")];
  let request = null;
  let shown = null;
  const show = () => {
    keepFocus(top, () => replace(top, above(request)));
    keepFocus(strip, () => replace(strip, tabs(request, tab)));
  };
  const entitle = () => {
    const { project } = request;
    page.title(`!${iid} ${request.title}`, projectCrumbs(project, ["Merge requests", address(project.fullPath, "merge_requests")]));
  };
  const soon = renewal(page, async () => {
    const before = request;
    request = await read("MergeRequest");
    if (request.title !== before.title) entitle();
    show();
    await shown.renew(request, before);
  });
  await page.follow("Changed", { path }, {
    event({ mergeRequestChanged: { mergeRequest, to } }) {
      if (mergeRequest.iid !== iid) return;
      if (request && to !== request.state) page.announce(`The merge request is ${labelOf(to)}.`);
      soon();
    },
    gap: soon,
  });
  renewSlowly(page, soon);
  // Browsers have six connections to a service for all tabs, so a page follows one stream and polls running builds.
  watch(page, POLL, async () => {
    if (!UNDECIDED.has(request?.headCommit?.rollup?.state)) return;
    if (checks((await read("Standing")).headCommit) !== checks(request.headCommit)) soon();
  });

  const act = async (operation, variables) => {
    await page.mutate(operation, { ...about, ...variables });
    soon();
  };
  const styles = Promise.all([sheet("review"), tab === "changes" ? sheet("files") : null, tab === "discussion" ? sheet("lists") : null]);
  request = await read("MergeRequest");
  entitle();
  show();
  await styles;
  page.show(top, strip, body);
  shown = TABS[tab]({ page, about, read, act, body, request, soon });
  await shown.ready;
}

// The head and the tabs

function above(request) {
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
        request.diffStat ? counted(request.diffStat) : null,
        request.unresolvedThreadCount ? h("span.tag", null, `${request.unresolvedThreadCount} unresolved ${request.unresolvedThreadCount === 1 ? "thread" : "threads"}`) : null)),
  ];
}

function tabs({ iid, project, commitCount, headCommit, diffStat, lastVisit }, current) {
  const counts = { commits: commitCount, builds: headCommit?.rollup?.counts.total, changes: diffStat?.files };
  const fresh = {
    discussion: lastVisit?.newNoteCount ? `${lastVisit.newNoteCount} new` : null,
    changes: lastVisit?.headOid && headCommit && lastVisit.headOid !== headCommit.oid ? "new" : null,
  };
  return h("nav.tabs", { "aria-label": "Parts of the merge request" }, [["discussion", "Discussion"], ["commits", "Commits"], ["builds", "Builds"], ["changes", "Changes"]].map(([name, word]) =>
    h("a", { href: address(project.fullPath, "merge_requests", iid, ...(name === "discussion" ? [] : [name])), "aria-current": name === current ? "page" : null },
      word, counts[name] ? [" ", h("span.tab-count", null, counts[name])] : null, fresh[name] ? [" ", h("span.tab-count.new-tag", null, fresh[name])] : null)));
}

// Each tab shows itself in `body`, and has `ready`, and `renew(request, before)` for events.

function showDiscussion({ page, about, read, act, body, request, soon }) {
  const [side, box, text, said] = [h("div.column"), h("div"), h("div"), h("div.review", { "data-walk": true })];
  const chosen = { remove: false };
  let conversation = null;
  let shown = null;
  const show = (now) => {
    const html = now.descriptionHtml;
    // Images in an unchanged one are not loaded again.
    if (!shown || html !== shown.descriptionHtml) keepFocus(text, () => replace(text, html ? h("div.card", null, markdown(html)) : h("p.quiet", null, "No description.")));
    keepFocus(box, () => replace(box, mergeBox(now, act, chosen)));
    replace(side, closing(now));
    shown = now;
  };
  const mayTriage = request.project.viewerCan.createMergeRequest;
  show(request);
  replace(body, h("div.columns", null,
    h("div.column", null, text,
      mayTriage ? triage(page, { ...about, operation: "UpdateMergeRequest", record: () => shown, done: soon }) : null,
      box, section("Comments", null, said)),
    side));
  const ready = (async () => {
    const record = visit(page, about);
    let [isNew, line, firstNew] = [null, null, null];
    const started = threads(page, { read, done: () => conversation.renew(), isNew: (each) => isNew(each) });
    // A thread is shown where its first note is.
    const row = (each) => {
      const card = each.thread && started.byId(each.thread.id);
      if (!card) return note(page, each);
      return card.thread.notes.nodes[0]?.databaseId === each.databaseId ? card.element : null;
    };
    const withLine = (each) => {
      const element = row(each);
      if (element && isNew(each)) firstNew ??= each.databaseId;
      return each.databaseId === firstNew ? [line, element] : element;
    };
    conversation = await discussion(async (after) => {
      const { notes, lastVisit } = await read("Notes", { after });
      isNew ??= newerThan(lastVisit, page.viewer);
      line ??= lastVisit ? newLine(lastVisit) : null;
      if (!after) await started.renew();
      record.saw({ note: Math.max(0, ...notes.nodes.map(({ databaseId }) => databaseId)) || null });
      return notes;
    }, withLine, showNotes);
    replace(said, unresolvedOnly(said), conversation.element, request.viewerCan.comment ? answer((text) => page.mutate("Comment", { ...about, body: text }), () => conversation.renew({ isWhole: true }), { page }) : null);
    await goToNote(conversation);
  })().catch(replaceByError(said));
  return {
    ready,
    async renew(now) {
      show(now);
      await conversation?.renew();
    },
  };
}

const closing = ({ closesIssues }) =>
  closesIssues.nodes.length ? section("Closes", null, rows(closesIssues.nodes, (issue) => issueRow(issue.project.fullPath)(issue), "")) : null;

const sourcePath = ({ sourceProject, project }) => sourceProject?.fullPath ?? project.fullPath;

function showCommits({ read, body, request }) {
  async function show(now) {
    const { commits, lastVisit } = await read("Commits", {});
    const fresh = new Set(lastVisit?.newCommits?.map(({ oid }) => oid));
    const row = (commit) => {
      const element = commitRow(sourcePath(now))(commit);
      if (fresh.has(commit.oid)) element.querySelector(".row-side").prepend(h("span.tag.new-tag", null, "new"));
      return element;
    };
    const list = rows(commits?.nodes ?? [], row, commits ? "It has no commits." : "The repository cannot be read.");
    keepFocus(body, () => replace(body, h("h2.unseen", null, "Commits"), list, commits ? more(commits.pageInfo, async (after) => {
      const next = (await read("Commits", { after })).commits;
      list.append(...next.nodes.map(row));
      return next.pageInfo;
    }) : null));
  }
  return { ready: show(request).catch(replaceByError(body)), renew: async (now, before) => now.headCommit?.oid === before.headCommit?.oid || show(now) };
}

function showBuilds({ body, request }) {
  const show = (now) => {
    const rollup = now.headCommit?.rollup;
    const builds = now.headCommit?.builds;
    keepFocus(body, () => replace(body,
      section("Builds of the newest commit", rollup && rollup.state !== "NONE" ? h("span.part-side", null, badge(rollup.state), lasted(rollup)) : null,
        rows(builds?.nodes ?? [], buildRow(sourcePath(now)), builds === null ? "You may not see them." : "There are no builds of its newest commit."),
        builds?.pageInfo.hasNextPage ? h("p", null, h("a", { href: address(sourcePath(now), "commit", now.headCommit.oid) }, "All builds of the commit")) : null)));
  };
  show(request);
  return { ready: null, renew: show };
}

function showChanges({ page, about, read, act, body, request }) {
  const [box, fresh, files] = [h("div"), h("div"), h("div")];
  const chosen = { remove: false };
  const showBox = (now) => keepFocus(box, () => replace(box, mergeBox(now, act, chosen)));
  let head = null;
  let onLines = null;
  const record = visit(page, about);
  /** The number of the newest reading: an earlier one that ends later is not shown. */
  let newest = 0;
  const choice = sinceChoice(page, () => show().catch(replaceByError(files)));
  const started = threads(page, { read, done: () => showThreads() });
  const showThreads = async () => onLines?.place(await started.renew());
  const start = async ({ newPath }, { before, after }, text) => {
    // The numbers before the change are those of the commit that was seen, not those of the merge request's diff.
    const oldLine = choice.value === "since" ? null : before;
    await page.mutate("StartThread", { ...about, body: text, position: { headOid: head, path: newPath, oldLine, newLine: after } });
    await showThreads();
  };
  const show = async () => {
    const since = choice.value === "since";
    const number = (newest += 1);
    const { headCommit, viewedPaths, lastVisit, changes: all } = await read(since ? "ChangesSince" : "Changes");
    if (number !== newest) return;
    head = headCommit?.oid;
    choice.show(lastVisit, head);
    // The commit that was seen may be the head again, or be deleted, since the choice was made.
    if (since && choice.value !== "since") return show();
    const entries = since ? lastVisit.changes : all;
    replace(fresh);
    const mark = (file, viewed) => page.mutate("MarkViewed", { ...about, file, head, viewed });
    onLines = lineThreads(page, { start: request.viewerCan.comment ? start : null, addedOnly: since });
    replace(files, changes(page, entries, { readFile: fileReader(page, about.path, head), mark, viewed: viewedPaths ?? [], threads: onLines }), onLines.others);
    // Before the threads are read: until then another head may be shown.
    if (head) record.saw({ head });
    await showThreads();
  };
  replace(files, h("p.quiet", null, "Loading the files…"));
  replace(body, h("h2.unseen", null, "Changes"), fresh, choice.element, files, h("div.review-end", null, box));
  showBox(request);
  return {
    ready: show().catch(replaceByError(files)),
    // Somebody who reads the lines is not interrupted: only threads appear.
    async renew(now) {
      showBox(now);
      await showThreads();
      if (now.headCommit?.oid !== head && !fresh.childElementCount)
        replace(fresh, h("p.draft-note", { role: "status" }, "There are new commits. ", h("button", { type: "button", onclick: () => show().catch(replaceByError(files)) }, "Show them")));
    },
  };
}
