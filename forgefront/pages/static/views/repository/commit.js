// A commit: its message, diff, builds and other checks, and the merge requests that contain it.

import { address, outside } from "../../address.js";
import { answer, discussion } from "../../discussion.js";
import { h, replace } from "../../dom.js";
import { replaceByError } from "../../errors.js";
import { errorIn } from "../../graph.js";
import { markdown } from "../../markdown.js";
import { ago, badge, code, icon, lasted, more, person, prose, section, symbol, labelOf } from "../../parts.js";
import { projectCrumbs } from "../../project/crumbs.js";
import { keepFocus, renewal } from "../../renewing.js";
import { folderAddress } from "../../repository/addresses.js";
import { changes, fileReader } from "../../review/changes.js";
import { buildRow, mergeRequestRow, rows } from "../../rows.js";
import { sheet } from "../../styles/sheets.js";

/** The operations that read further pages of the lists of a commit. */
const MORE = { builds: "MoreBuilds", statuses: "MoreStatuses" };

export async function open(page) {
  const { path, sha } = page.where;
  const about = { path, rev: sha };
  const read = async (operation, variables = {}) => {
    const data = await page.request(operation, { ...about, ...variables });
    const { project } = data;
    if (!project?.commit) throw errorIn(data)?.code === "FORBIDDEN" ? errorIn(data) : page.missing("commit");
    return { ...project.commit, project };
  };

  const [top, side, said, files] = [h("div.column"), h("div.column"), h("div"), h("div")];
  let commit = null;
  /** How many further pages of the lists are shown. */
  const shown = { builds: 0, statuses: 0 };
  const show = () => {
    keepFocus(top, () => replace(top, above(commit)));
    keepFocus(side, () => replace(side, beside(commit, readMore)));
  };
  /** Adds the next page of a list of the commit to it; returns its rows. */
  const extend = async (about, name) => {
    const next = (await read(MORE[name], { after: about[name].pageInfo.endCursor }))[name];
    about[name] = { ...next, nodes: [...about[name].nodes, ...next.nodes] };
    return next.nodes;
  };
  const readMore = async (name, add) => {
    const about = commit;
    add(await extend(about, name));
    shown[name] += 1;
    // It was read again meanwhile, without this page.
    if (about !== commit) soon();
    return about[name].pageInfo;
  };
  const soon = renewal(page, async () => {
    const next = await read("Commit");
    for (const [name, pages] of Object.entries(shown)) for (let at = 0; at < pages && next[name]?.pageInfo.hasNextPage; at += 1) await extend(next, name);
    commit = next;
    show();
  });
  await page.follow("Built", { path }, {
    event({ buildChanged: { build, to } }) {
      if (commit && build.sha !== commit.oid) return;
      page.announce(`${build.name}: ${labelOf(to)}.`);
      soon();
    },
    gap: soon,
  });
  [commit] = await Promise.all([read("Commit"), sheet("review"), sheet("files")]);
  page.title(`${commit.title} · ${commit.shortOid}`, projectCrumbs(commit.project, ["Commits", address(commit.project.fullPath, "commits")]));
  show();
  replace(files, h("p.quiet", null, "Loading the files…"));
  page.show(h("div.columns", null, h("div.column", null, top, section("Changes", null, files), section("Comments", null, said)), side));

  await Promise.all([
    (async () => replace(files, changes(page, (await read("Changes")).diff, { readFile: fileReader(page, path, commit.oid) })))().catch(replaceByError(files)),
    (async () => {
      const conversation = await discussion(async (after) => (await read("Notes", { after })).comments, comment);
      replace(said, conversation.element, commit.viewerCan.comment ? answer((note) => page.mutate("Comment", { ...about, note }), () => conversation.renew({ isWhole: true }), { page }) : null);
    })().catch(replaceByError(said)),
  ]);
}

function above(commit) {
  const { project: { fullPath: path } } = commit;
  // The title may be only the beginning of the first line.
  const [first, ...rest] = commit.message.trim().split("\n");
  const other = commit.committerName !== commit.authorName;
  return [
    h("header.work-head", null,
      h("h1", null, first || commit.title),
      h("div.facts", null,
        !commit.rollup || commit.rollup.state === "NONE" ? null : badge(commit.rollup.state),
        person(commit.author, commit.author?.name ?? commit.authorName), ago(commit.authoredAt),
        other ? h("span", null, `committed by ${commit.committerName} `, ago(commit.committedAt)) : null,
        h("span", null, code(commit.oid)), h("a", { href: folderAddress(path, "", commit.oid) }, "Files"),
        commit.parentOids.length
          ? h("span", null, commit.parentOids.length === 1 ? "parent " : "parents ", commit.parentOids.map((oid, at) => [at ? " and " : null, h("a", { href: address(path, "commit", oid) }, code(oid.slice(0, 8)))]))
          : h("span", null, "root commit"))),
    rest.some((line) => line.trim()) ? h("div.card", null, prose(rest.join("\n"))) : null,
    (commit.pipelines?.nodes ?? []).filter(({ error }) => error).map(({ ref, error }) =>
      h("div.wrong", null, h("strong", null, `The build file cannot be read on ${ref}`), error.split("\n").map((line) => h("p", null, line)))),
  ];
}

function beside(commit, readMore) {
  const { rollup, builds, statuses, mergeRequests, pipelines, project: { fullPath: path } } = commit;
  const skipped = pipelines?.nodes.some((each) => each.skipped);
  const further = (name, row, list) => [list, more(commit[name].pageInfo, () => readMore(name, (nodes) => list.append(...nodes.map(row))), `More ${name === "builds" ? name : "checks"}`)];
  const issues = new Map(mergeRequests.nodes.flatMap((request) => request.closesIssues.nodes).map((issue) => [`${issue.project.fullPath}#${issue.iid}`, issue]));
  return [
    builds ? section("Builds", !rollup || rollup.state === "NONE" ? null : h("span.part-side", null, rollup.coverage === null ? null : h("span.quiet", null, `${rollup.coverage} % coverage`), lasted(rollup)),
      further("builds", buildRow(path), rows(builds.nodes, buildRow(path), skipped ? "Builds were skipped by the commit message." : "There are no builds."))) : null,
    statuses?.nodes.length ? section("Other checks", null, further("statuses", status, h("ol.rows", null, statuses.nodes.map(status)))) : null,
    mergeRequests.nodes.length ? section("Merge requests", null, rows(mergeRequests.nodes, (request) => mergeRequestRow(request.project.fullPath)(request), "")) : null,
    issues.size ? section("Issues they close", null, h("ol.rows", { "data-walk": true }, [...issues.values()].map(issue))) : null,
  ];
}

const status = ({ name, status: state, description, targetUrl, ref, createdAt, finishedAt }) =>
  h("li.row", { "data-box": true }, symbol(state),
    h("p.row-title", null, targetUrl && outside(targetUrl) ? h("a", { href: outside(targetUrl), rel: "noopener noreferrer" }, name) : name),
    h("span.row-side", null, ago(finishedAt ?? createdAt)),
    h("p.row-meta", null, description ? h("span", null, description) : null, ref ? h("span.ref", null, icon("branch"), ref) : null));

const issue = ({ iid, title, state, project }) =>
  h("li.row", { "data-box": true }, symbol(state),
    h("p.row-title", null, h("a", { href: address(project.fullPath, "issues", iid), "data-item": true }, title)),
    h("span.row-side", null, `#${iid}`));

const comment = ({ bodyHtml, path, line, createdAt, author }) =>
  h("article.note.card", null,
    h("header", null, person(author), ago(createdAt), path ? code(line ? `${path}:${line}` : path) : null), markdown(bodyHtml));
