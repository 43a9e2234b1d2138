// A build: its state, output and artifact, and the buttons that retry or cancel it.

import { address, outside } from "../address.js";
import { artifactAddress, entryRows, isArchive, styles as fileStyles } from "../artifact/listing.js";
import { removal } from "../dialogs.js";
import { doing } from "../discussion.js";
import { h, replace } from "../dom.js";
import { ago, badge, duration, exactly, icon, person, section, since, symbol, labelOf } from "../parts.js";
import { projectCrumbs } from "../project/crumbs.js";
import { save } from "../project/downloads.js";
import { keepFocus, renewal, watch } from "../renewing.js";
import { buildRow, mergeRequestLink, rows } from "../rows.js";
import { size } from "../sizes.js";
import { coloured } from "../trace/ansi.js";
import { output, styles } from "../trace/output.js";

const POLL = 5000;
const LISTED_FILES = 8;
const ERASURE = { title: "Erase the build?", text: "Its output and its artifact are erased. This cannot be undone.", word: "Erase" };

export async function open(page) {
  const { path } = page.where;
  const about = { path, id: Number(page.where.number) };
  const read = async (operation) => {
    const { project } = await page.request(operation, about);
    if (!project?.build) throw page.missing("build");
    return { ...project.build, project };
  };

  const [top, files, side] = [h("div.column"), h("div.column"), h("div.column")];
  const printed = output(page, about);
  let build = null;
  const show = () => {
    keepFocus(top, () => replace(top, above(page, build, act)));
    const opened = new Set([...side.querySelectorAll(".attempts details[open]")].map(({ dataset }) => dataset.attempt));
    keepFocus(side, () => replace(side, beside(build)));
    for (const each of side.querySelectorAll(".attempts details")) each.open = opened.has(each.dataset.attempt);
    printed.read(build);
    showFiles(build.artifact);
  };
  let listed = null;
  /** The first files of the artifact, read once for each. A page without them is still that of the build. */
  const showFiles = (artifact) => {
    const known = artifact && isArchive(artifact.filename) ? `${artifact.filename} ${artifact.size} ${artifact.createdAt}` : null;
    if (known === listed) return;
    listed = known;
    if (!known) {
      replace(files);
      return;
    }
    Promise.all([page.request("Files", { ...about, first: LISTED_FILES }), fileStyles()])
      .then(([{ project }]) => listed === known && replace(files, filesOf(path, about.id, project?.artifact?.entries)))
      .catch(() => {});
  };
  const soon = renewal(page, async () => {
    build = await read("Build");
    show();
  });
  const act = async (operation) => {
    await page.mutate(operation, about);
    soon();
  };

  await page.follow("Changed", { path }, {
    event({ buildChanged: { build: changed, to } }) {
      if (changed.databaseId === about.id) page.announce(`The build is ${labelOf(to)}.`);
      if (!build || changed.databaseId === about.id || build.pipeline?.builds.nodes.some((each) => each.databaseId === changed.databaseId)) soon();
    },
    gap: soon,
  });
  const styled = styles();
  build = await read("Build");
  page.title(`${build.name} #${build.databaseId}`, projectCrumbs(build.project, ["Builds", address(build.project.fullPath, "builds")]));
  show();
  await styled;
  page.show(h("div.columns", null, h("div.column", null, top, files, section("Output", null, printed.element)), side));
  printed.goTo(location.hash);
  addEventListener("hashchange", () => printed.goTo(location.hash), { signal: page.signal });
  // Where there are no events, for example because the viewer has too many streams open.
  watch(page, POLL, async () => {
    if (build.status === "RUNNING" && (await read("Status")).status !== build.status) soon();
  });
}

function above(page, build, act) {
  const { project: { fullPath: path }, viewerCan: can } = build;
  const wrong = h("p.wrong", { role: "alert", hidden: true });
  return h("header.work-head", null,
    h("div.head-line", null,
      h("h1", null, build.name, " ", h("span.quiet", null, `#${build.databaseId}`)),
      h("div.actions", null,
        can.play ? doing("button", "Play", wrong, () => act("Play")) : null,
        can.retry ? doing("button", "Retry", wrong, () => act("Retry")) : null,
        can.cancel ? doing("button", "Cancel", wrong, () => act("Cancel")) : null,
        can.erase && (build.trace || build.artifact)
          ? removal(page, { ...ERASURE, act: () => act("Erase") })
          : null)),
    wrong,
    h("div.facts", null,
      badge(build.status), build.allowFailure && build.status === "FAILED" ? h("span.tag", null, "allowed to fail") : null,
      h("span", null, build.stage),
      h("span.ref", null, icon("branch"), build.ref),
      build.commit ? h("a", { href: address(path, "commit", build.commit.oid) }, h("code", null, build.commit.shortOid), ` ${build.commit.title}`) : null,
      build.mergeRequest ? mergeRequestLink(build.mergeRequest) : null,
      ago(build.finishedAt ?? build.startedAt ?? build.createdAt)),
    build.description ? h("p", null, build.description) : null,
    build.artifact ? download(page, build.artifact, can.erase ? () => act("Keep") : null) : null,
    build.artifactsExpiredAt ? h("p.quiet", null, "The artifact expired ", ago(build.artifactsExpiredAt), ".") : null);
}

function beside(build) {
  const { project: { fullPath: path } } = build;
  const ran = build.status === "RUNNING" && build.startedAt ? since(build.startedAt) : build.durationSeconds === null ? null : duration(build.durationSeconds);
  const facts = [
    ["Ran for", ran],
    ["Queued for", build.queuedSeconds === null ? null : duration(build.queuedSeconds)],
    ["Created by", build.user ? person(build.user) : null],
    ["Runner", build.runner?.description ?? null],
    ["Attempt", build.attempt > 1 ? String(build.attempt) : null],
    ["Deployed to", build.deployment ? h("a", { href: address(path, "environments") }, build.deployment.environment.name) : null],
    ["Coverage", build.coverage === null ? null : `${build.coverage} %`],
    ["Erased", build.erasedAt ? ago(build.erasedAt) : null],
    ["Details", build.targetUrl && outside(build.targetUrl) ? h("a", { href: outside(build.targetUrl), rel: "noopener noreferrer" }, "external page") : null],
  ].filter(([, value]) => value !== null);
  const others = (build.pipeline?.builds.nodes ?? []).filter((each) => each.databaseId !== build.databaseId);
  const earlier = build.attempts.nodes.filter((each) => each.attempt !== build.attempt);
  return [
    h("dl.table.card", null, facts.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value)))),
    earlier.length ? section("Earlier attempts", null, h("ol.attempts", null, earlier.map(attempt))) : null,
    others.length ? section("Other builds of the pipeline", build.pipeline.builds.pageInfo.hasNextPage && build.commit ? h("a", { href: address(path, "commit", build.commit.oid) }, "All of the commit") : null, rows(others, buildRow(path), "")) : null,
  ];
}

const attempt = ({ attempt: number, status, createdAt, finishedAt, durationSeconds, trace }) =>
  h("li", null, h("details.card", { "data-attempt": number },
    h("summary", null, symbol(status), ` Attempt ${number} `, h("span.quiet", null, ago(finishedAt ?? createdAt), durationSeconds === null ? null : `, ${duration(durationSeconds)}`)),
    trace?.lines.length ? h("pre.output", { tabindex: 0 }, h("code", null, trace.lines.map((line) => [coloured(line), "\n"]))) : h("p.quiet", null, "The output was erased.")));

function filesOf(path, build, entries) {
  if (!entries?.nodes.length) return null;
  const all = h("a", { href: artifactAddress(path, build, "") }, entries.totalCount > entries.nodes.length ? `All ${entries.totalCount}` : "Browse");
  return section("Files of the artifact", all, h("ol.rows.files", { "data-walk": true }, entryRows(path, build, entries.nodes)));
}

function download(page, { filename, size: bytes, downloadUrl, expiresAt }, keep) {
  const wrong = h("p.wrong", { role: "alert", hidden: true });
  const button = doing("button", `Download ${filename} (${size(bytes)})`, wrong, () => save(page, downloadUrl, filename));
  return h("div.stack", null,
    h("div.actions.start", null, button, expiresAt && keep ? doing("button", "Keep", wrong, keep) : null),
    expiresAt ? h("p.quiet", null, `It is deleted on ${exactly(expiresAt)}.`) : null,
    wrong);
}
