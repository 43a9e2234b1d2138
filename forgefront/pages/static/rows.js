// Rows of lists: commits, builds, merge requests, issues, activities, stars, each with links to its page and to related pages.

import { address } from "./address.js";
import { h } from "./dom.js";
import { ago, avatar, failing, icon, lasted, symbol, labelOf } from "./parts.js";

/** A list with keyboard navigation; `none` is the text of an empty one. */
export const rows = (nodes, make, none) =>
  nodes.length ? h("ol.rows", { "data-walk": true }, nodes.map(make)) : h("p.quiet", null, none);

const row = (state, href, title, side, meta, attributes, kind = "li.row") =>
  h(kind, { "data-box": true, ...attributes },
    state ? symbol(...[state].flat()) : h("span"),
    h("p.row-title", null, h("a", { href, "data-item": true, title }, title)),
    h("span.row-side", null, side),
    h("p.row-meta", null, meta));

const who = (user, name = user?.name) => h("span.person", null, avatar(user, name), h("span", null, user?.name ?? name));
const project = (path) => h("a", { href: address(path) }, path);
/** A link from a branch or a tag to its history. */
const refLink = (path, name) => h("a.ref", { href: `${address(path, "commits")}?ref=${encodeURIComponent(name)}`, title: name }, icon("branch"), name);
const ref = (name) => h("span.ref", { title: name }, icon("branch"), name);

/** The builds of a commit as linked symbols. */
export const dots = (path, builds) =>
  h("span.dots", null,
    builds.nodes.toReversed().map((build) => h("a", { href: address(path, "builds", build.databaseId) }, symbol(build.status, `${build.stage}: ${build.name} ${labelOf(build.status)}`))),
    builds.totalCount > builds.nodes.length ? h("span", null, `+${builds.totalCount - builds.nodes.length}`) : null);

/** A link to a merge request that contains a commit. */
export const mergeRequestLink = ({ iid, title, state, project }) =>
  h("a.mr-link", { href: address(project.fullPath, "merge_requests", iid), title: `${title} (${labelOf(state)})` }, icon("merge"), `!${iid}`);

export const commitRow = (path) => (commit) =>
  row(commit.rollup?.state ?? "NONE", address(path, "commit", commit.oid), commit.title,
    [commit.builds?.nodes.length ? dots(path, commit.builds) : null, h("code", null, commit.shortOid)],
    [who(commit.author, commit.authorName), ago(commit.committedAt), commit.rollup ? lasted(commit.rollup) : null,
      (commit.mergeRequests?.nodes ?? []).map(mergeRequestLink),
      commit.rollup?.failing.length ? failing(commit.rollup.failing, 0, 2) : null],
    {}, "li.row.long");

/** `brief`: for a narrow column, without the commit. `placed`: with its project, for a list of several projects. */
export const buildRow = (path, { brief = false, placed = false } = {}) => (build) =>
  row([build.status, build.allowFailure && build.status === "FAILED" ? "failed (allowed to fail)" : labelOf(build.status)], address(path, "builds", build.databaseId), build.name,
    [lasted({ ...build, state: build.status }), h("span", null, `#${build.databaseId}`)],
    [placed ? project(path) : null, h("span", null, build.stage), refLink(path, build.ref), brief || !build.commit ? null : h("span", null, build.commit.title),
      build.user ? who(build.user) : null, ago(build.finishedAt ?? build.startedAt ?? build.createdAt)],
    { "data-build": build.databaseId });

const BLOCKERS = {
  CONFLICT: "conflicts",
  BUILD_RUNNING: "builds running",
  BUILD_FAILED: "builds failed",
  WORK_IN_PROGRESS: "work in progress",
  NO_COMMITS: "no commits",
};

/** `placed`: with its project, for a list of several projects. */
export const mergeRequestRow = (path, { placed = false } = {}) => (request) => {
  const open = request.state === "OPENED" || request.state === "REOPENED";
  const rollup = request.headCommit?.rollup;
  return row(open ? [rollup?.state ?? "NONE", `open, ${labelOf(rollup?.state)}`] : request.state, address(path, "merge_requests", request.iid), request.title,
    h("span", null, `!${request.iid}`),
    [placed ? project(path) : null, who(request.author), ref(`${request.sourceBranch} → ${request.targetBranch}`), ago(request.mergedAt ?? request.updatedAt), open && rollup ? lasted(rollup) : null,
      open ? request.blockers.filter((each) => BLOCKERS[each]).map((each) => h("span.tag", null, BLOCKERS[each])) : null]);
};

export const issueRow = (path, { placed = false } = {}) => (issue) =>
  row(issue.state, address(path, "issues", issue.iid), issue.title,
    [issue.assignee ? h("span", { title: `assigned to ${issue.assignee.name}` }, avatar(issue.assignee)) : null, h("span", null, `#${issue.iid}`)],
    [placed ? project(path) : null, who(issue.author), ago(issue.createdAt), issue.milestone ? h("span", null, issue.milestone.title) : null, issue.labelNodes?.map(label)]);

const VERBS = { CREATED: "created the project", JOINED: "joined the project", LEFT: "left the project" };
const NOUNS = { ISSUE: "issue #", MERGE_REQUEST: "merge request !", MILESTONE: "milestone ", ISSUE_NOTE: "issue #", MERGE_REQUEST_NOTE: "merge request !", COMMIT_COMMENT: "commit " };
const SHOWN_COMMITS = 3;
const EXCERPT = 240;

/** An activity: "Ada Lindqvist closed issue #3", and what it was about. `placed`: with its project instead of its author. */
export const activityRow = (path, { placed = false } = {}) => ({ action, subject, actionName, targetTitle, webUrl, createdAt, author, note, push }) => {
  const [words, href] = push ? pushed(path, actionName, push) : done({ action, subject, actionName, webUrl });
  const about = targetTitle ?? note?.issue?.title ?? note?.mergeRequest?.title;
  const commits = push?.commits.slice(-SHOWN_COMMITS).reverse() ?? [];
  return h("li.row", { "data-box": true },
    placed ? h("span") : avatar(author),
    h("p.row-title", null, placed ? null : [h("a.quiet-link", { href: address("u", author.username) }, author.name), " "], href ? h("a", { href, "data-item": true }, words) : words),
    h("span.row-side", null, ago(createdAt)),
    h("p.row-meta", null, placed ? project(path) : null, about ? h("span", null, about) : null, note ? h("span.quotation", null, note.body.slice(0, EXCERPT)) : null,
      commits.map(({ oid, message }) => h("span", null, h("a", { href: address(path, "commit", oid) }, h("code", null, oid.slice(0, 8))), ` ${message.split("\n", 1)[0]}`)),
      push && push.totalCommitsCount > commits.length && commits.length ? h("span", null, `and ${push.totalCommitsCount - commits.length} more`) : null));
};

/** The words for a push, and the address of the history of the ref if it still exists. */
function pushed(path, actionName, { ref, after }) {
  const [, kind, name] = /^refs\/(heads|tags)\/(.*)$/s.exec(ref) ?? [null, "heads", ref];
  const noun = kind === "tags" ? "tag" : "branch";
  const words = actionName === "pushed to" ? `pushed to the ${noun} ${name}` : `${actionName === "deleted" ? "deleted" : "pushed"} the ${actionName === "deleted" ? "" : "new "}${noun} ${name}`;
  return [words, /^0*$/.test(after) ? null : `${address(path, "commits")}?ref=${encodeURIComponent(name)}`];
}

function done({ action, subject, actionName, webUrl }) {
  if (VERBS[action]) return [VERBS[action], null];
  if (!webUrl) return [`${actionName} what was deleted since`, null];
  const { pathname } = new URL(webUrl);
  const number = pathname.split("/").at(-1);
  return [`${action === "REOPENED" ? "reopened" : actionName} ${NOUNS[subject]}${subject === "COMMIT_COMMENT" ? number.slice(0, 8) : number}`, pathname];
}

export const starRow = ({ user, createdAt }) =>
  row(null, address("u", user.username), user.name, ago(createdAt), [h("span", null, `@${user.username}`)]);

export function label({ name, color }) {
  const element = h("span.label", null, name);
  if (/^#[0-9a-f]{6}$/i.test(color)) element.style.setProperty("--colour", color);
  return element;
}
