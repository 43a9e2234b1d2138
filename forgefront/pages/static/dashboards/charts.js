// The charts of a dashboard: what each asks, and how its answer is shown.

import { address } from "../address.js";
import { h } from "../dom.js";
import { ago, avatar, symbol, labelOf } from "../parts.js";
import { card, reading } from "./card.js";
import { toQuery } from "./filters.js";
import * as svg from "./svg.js";

const DAY = 86_400_000;
const AGES = [[1, "under a day"], [3, "1 to 3 days"], [7, "3 to 7 days"], [28, "1 to 4 weeks"], [Infinity, "over 4 weeks"]];
const OLDEST = 6;
const LAST_CHANGES = 6;
const percent = (share) => (share === null || share === undefined ? "–" : `${Math.round(share * 1000) / 10} %`);
const count = (value) => new Intl.NumberFormat("en").format(value);

/** The charts of a project or a group. `own` is `{kind: "project" | "group", path}`; `offer(name, values)` suggests values of a filter. */
export function charts(page, own, offer) {
  const isGroup = own.kind === "group";
  const builds = (word, state) => ({ chosen }) => [[word, buildList(own, chosen, state)]];
  const place = isGroup ? ["groups", own.path] : [own.path];
  const requests = (word, state) => ({ chosen }) => [[word, `${address(...place, "merge_requests")}?${new URLSearchParams({ state, ...(chosen.author && { author: chosen.author }) })}`]];
  const shared = buildsOverTime(page, own);
  return [
    isGroup ? timelines(page, builds("Builds")) : timeline(page, own),
    shared("Duration of builds", duration, builds("Builds")),
    shared("Success rate", success, builds("Failed builds", "failed")),
    shared("Waiting time", waiting, builds("Builds")),
    isGroup ? groupLeadTime(page, requests("Merged", "merged")) : leadTime(page, own, requests("Merged", "merged")),
    throughput(page, own, requests("Merge requests", "all")),
    openByAge(page, own, requests("Open merge requests", "opened")),
    flaky(page, own, builds("Failed builds", "failed")),
    compared(page, own, offer, builds("Builds")),
    people(page, own, offer, builds("Builds")),
  ];
}

/** The address of the builds that a chart shows. */
function buildList({ kind, path }, chosen, state) {
  const query = new URLSearchParams(Object.entries({ status: state ?? "all", ref: chosen.branch === "*" ? "" : chosen.branch, branch: chosen.branch ? "" : "default", job: chosen.job, author: chosen.author, days: chosen.range }).filter(([, value]) => value));
  return `${kind === "group" ? address("groups", path, "builds") : address(path, "builds")}?${query}`;
}

const sentBuilds = ({ path, builds, bucket, zone }) => ({ path, builds, bucket, zone });
const dated = (zone, bucket) => {
  const form = new Intl.DateTimeFormat("en", { timeZone: zone, ...(bucket === "MONTH" ? { month: "long", year: "numeric" } : { day: "numeric", month: "short", year: "numeric" }) });
  return (time) => (bucket === "WEEK" ? `week of ${form.format(time)}` : form.format(time));
};

// Builds over time: one operation, three charts.

function buildsOverTime(page, { kind }) {
  const isGroup = kind === "group";
  return (title, show, links) => ({
    ...card(page, { title, view: isGroup ? "group_builds" : "project_builds", operation: isGroup ? "GroupBuildsOverTime" : "ProjectBuildsOverTime", links,
      show: (data, variables) => show((data.project ?? data.group), variables) }),
    sent: sentBuilds,
  });
}

function quantiles({ buildStats: { rows, truncated }, whole }, { span, zone, bucket }, field, words) {
  const found = rows.filter((row) => row[field]?.count);
  const points = found.map((row) => Date.parse(row.bucketStart));
  const name = dated(zone, bucket);
  const all = whole.rows[0]?.[field];
  const say = reading(truncated ? "Only the first buckets are shown." : words);
  const series = [
    { name: "median (p50)", kind: "line", look: "series-1", marker: "circle", values: found.map((row) => row[field].p50) },
    { name: "slowest 5 % (p95)", kind: "line", look: "series-2", marker: "square", values: found.map((row) => row[field].p95) },
  ];
  return {
    figures: all ? [[svg.took(all.p50), "p50"], [svg.took(all.p95), "p95"]] : [],
    chart: svg.overTime({ label: `${words}, from ${name(span[0])} to ${name(span[1])}; the table has the figures`, span, points, series, zone, seconds: true,
      read: (at) => say.say(at === null ? null : `${name(points[at])}: p50 ${svg.took(series[0].values[at])}, p95 ${svg.took(series[1].values[at])}, ${count(found[at][field].count)} builds`) }),
    key: svg.key(series),
    below: say.element,
    columns: ["From", "Builds", "p50", "p95", "Longest"],
    rows: found.map((row) => [name(Date.parse(row.bucketStart)), count(row[field].count), svg.took(row[field].p50), svg.took(row[field].p95), svg.took(row[field].max)]),
  };
}

const duration = (data, variables) => quantiles(data, variables, "duration", "How long builds ran");
const waiting = (data, variables) => quantiles(data, variables, "queued", "How long builds waited for a runner");

function success({ buildStats: { rows }, whole }, { span, zone, bucket }) {
  const points = rows.map((row) => Date.parse(row.bucketStart));
  const name = dated(zone, bucket);
  const all = whole.rows[0];
  const say = reading("Share of builds that passed");
  const series = [{ name: "passed, of passed and failed", kind: "line", look: "series-1", marker: "circle", values: rows.map(({ successRate }) => (successRate === null ? null : successRate * 100)) }];
  return {
    figures: all ? [[percent(all.successRate), "passed"], [count(all.counts.failed), "failed"], [count(all.retried), "retried"]] : [],
    chart: svg.overTime({ label: `Share of builds that passed, from ${name(span[0])} to ${name(span[1])}; the table has the figures`, span, points, series, zone, unit: " %", top: 100,
      read: (at) => say.say(at === null ? null : `${name(points[at])}: ${percent(rows[at].successRate)}, ${count(rows[at].counts.failed)} of ${count(rows[at].counts.total)} failed`) }),
    key: svg.key(series),
    below: say.element,
    columns: ["From", "Builds", "Passed", "Failed", "Retried", "Rate"],
    rows: rows.map((row) => [name(Date.parse(row.bucketStart)), count(row.counts.total), count(row.counts.success), count(row.counts.failed), count(row.retried), percent(row.successRate)]),
  };
}

// The state of branches

const segmentsOf = (timeline, now) => timeline.map((each) => ({ ...each, from: Date.parse(each.startedAt), until: each.endedAt ? Date.parse(each.endedAt) : now }));
const sentRange = (names) => ({ path, since, until, chosen }) => ({ path, ...(names && { branch: chosen.branch && chosen.branch !== "*" ? chosen.branch : null }), range: { since, until } });
const moment = (zone) => {
  const form = new Intl.DateTimeFormat("en", { timeZone: zone, day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
  return (time) => form.format(time);
};
const share = (segments, state) => segments.filter((each) => each.state === state).reduce((sum, { seconds }) => sum + seconds, 0);

function described(segment, when) {
  const by = segment.commit ? `, ${segment.commit.shortOid} ${segment.commit.title} (${segment.commit.author?.name ?? segment.commit.authorName})` : "";
  return `${labelOf(segment.state)} from ${when(segment.from)} for ${svg.took(segment.seconds)}${by}`;
}

function timeline(page, { path }) {
  return {
    ...card(page, { title: "The branch over time", wide: true, view: "project_timeline", operation: "ProjectBranchTimeline",
      links: ({ chosen }) => [["Commits", `${address(path, "commits")}${chosen.branch && chosen.branch !== "*" ? `?ref=${encodeURIComponent(chosen.branch)}` : ""}`]],
      show({ project }, { span, zone }) {
        if (!project.branch) return { rows: [] };
        const segments = segmentsOf(project.branch.timeline, span[1]);
        const when = moment(zone);
        const [good, bad] = [share(segments, "SUCCESS"), share(segments, "FAILED")];
        const say = reading(`${project.branch.name}: state over time`);
        return {
          figures: [[percent(good + bad ? good / (good + bad) : null), "time passing"], [svg.took(bad), "failing"]],
          chart: svg.bands({ label: `States of the branch ${project.branch.name}; the table has them`, span, zone, rows: [{ name: project.branch.name, segments }],
            read: (segment) => say.say(segment && described(segment, when)) }),
          below: [say.element, changes(path, segments, when)],
          columns: ["From", "State", "Lasted", "Commit", "Author"],
          rows: segments.map((each) => [when(each.from), labelOf(each.state), svg.took(each.seconds), each.commit ? `${each.commit.shortOid} ${each.commit.title}` : null, each.commit?.author?.name ?? each.commit?.authorName]),
        };
      } }),
    sent: sentRange(true),
  };
}

/** The periods in which the branch failed: who broke it, and who repaired it, if it passes again. */
function changes(path, segments, when) {
  const finished = segments.filter(({ state }) => state === "FAILED" || state === "SUCCESS");
  const broken = finished.map((segment, at) => [segment, finished.slice(at + 1).find(({ state }) => state === "SUCCESS")]).filter(([{ state }, ], at) => state === "FAILED" && finished[at - 1]?.state !== "FAILED");
  if (!broken.length) return null;
  const by = (word, segment) => h("span.person", null, word, segment.commit ? [avatar(segment.commit.author, segment.commit.authorName), h("a", { href: address(path, "commit", segment.commit.shortOid) }, segment.commit.title)] : " a deleted commit");
  return h("ol.changes", { "aria-label": "Breakages and fixes" }, broken.slice(-LAST_CHANGES).reverse().map(([bad, good]) =>
    h("li", null, symbol("FAILED"), h("span", null, `${when(bad.from)}, ${svg.took(((good?.from ?? bad.until) - bad.from) / 1000)}`), by("broken by ", bad), good ? by("fixed by ", good) : h("span.quiet", null, "not fixed yet"))));
}

function timelines(page, links) {
  return {
    ...card(page, { title: "Branches over time", wide: true, view: "group_timelines", operation: "GroupBranchTimelines", links,
      show({ group }, { span, zone, chosen }) {
        const when = moment(zone);
        const shown = group.projects.nodes.filter(({ branch }) => branch?.timeline.length).map((project) => ({ ...project, segments: segmentsOf(project.branch.timeline, span[1]) }));
        const say = reading("The default branch of each project");
        return {
          figures: group.projects.totalCount > group.projects.nodes.length ? [[`${group.projects.nodes.length} of ${group.projects.totalCount}`, "projects"]] : [],
          chart: svg.bands({ label: "States of the default branches; the table has them", span, zone, rows: shown, read: (segment) => say.say(segment && described(segment, when)) }),
          below: say.element,
          columns: ["Project", "Now", "Since", "Passing", "Failing"],
          rows: shown.map(({ name, fullPath, segments }) => [h("a", { href: `${address(fullPath)}/dashboard${toQuery(chosen)}` }, name), labelOf(segments.at(-1).state), when(segments.at(-1).from), svg.took(share(segments, "SUCCESS")), svg.took(share(segments, "FAILED"))]),
        };
      } }),
    sent: sentRange(false),
  };
}

// Merge requests

const sentMerges = ({ path, requests, since, until, bucket, zone }) => ({ path, requests: { ...requests, updated: { since } }, merged: { ...requests, merged: { since, until } }, bucket, zone });
const inSpan = (rows, span, zone) => rows.filter(({ bucketStart }) => Date.parse(bucketStart) >= span[0] - (zone ? 31 * DAY : 0));

function leadTime(page, _own, links) {
  return {
    ...card(page, { title: "Lead time, first commit to merge", view: "project_merges", operation: "ProjectMergeRequestsOverTime", links,
      show({ project: { mergeRequestStats, whole } }, { span, zone, bucket }) {
        const name = dated(zone, bucket);
        const rows = inSpan(mergeRequestStats, span).filter(({ leadTime }) => leadTime.count);
        const points = rows.map((row) => Date.parse(row.bucketStart));
        const say = reading("From the first commit to the merge");
        const series = [
          { name: "median (p50)", kind: "line", look: "series-1", marker: "circle", values: rows.map((row) => row.leadTime.p50) },
          { name: "slowest 10 % (p90)", kind: "line", look: "series-2", marker: "square", values: rows.map((row) => row.leadTime.p90) },
        ];
        return {
          figures: [[svg.took(whole[0].leadTime.p50), "p50"], [svg.took(whole[0].leadTime.p90), "p90"], ...(whole[0].redAtMerge ? [[count(whole[0].redAtMerge), "red when merged"]] : [])],
          chart: svg.overTime({ label: "Lead time of merge requests; the table has the figures", span, points, series, zone, seconds: true,
            read: (at) => say.say(at === null ? null : `${name(points[at])}: p50 ${svg.took(series[0].values[at])}, p90 ${svg.took(series[1].values[at])}, ${count(rows[at].leadTime.count)} merged`) }),
          key: svg.key(series),
          below: say.element,
          columns: ["From", "Merged", "p50", "p90", "Longest", "Red when merged"],
          rows: rows.map((row) => [name(Date.parse(row.bucketStart)), count(row.merged), svg.took(row.leadTime.p50), svg.took(row.leadTime.p90), svg.took(row.leadTime.max), row.redAtMerge]),
        };
      } }),
    sent: sentMerges,
  };
}

function groupLeadTime(page, links) {
  return {
    ...card(page, { title: "Lead time by project, first commit to merge", view: "group_merges", operation: "GroupMergeRequestsOverTime", links,
      show({ group }, { chosen }) {
        const rows = group.projects.nodes.filter(({ whole }) => whole?.[0]?.leadTime.count);
        return {
          chart: null,
          columns: ["Project", "Merged", "p50", "p90"],
          rows: rows.map(({ name, fullPath, whole: [{ merged, leadTime }] }) => [h("a", { href: `${address(fullPath)}/dashboard${toQuery(chosen)}` }, name), count(merged), svg.took(leadTime.p50), svg.took(leadTime.p90)]),
        };
      } }),
    sent: sentMerges,
  };
}

function throughput(page, { kind }, links) {
  const isGroup = kind === "group";
  return {
    ...card(page, { title: "Merge requests opened and merged", view: isGroup ? "group_merges" : "project_merges", operation: isGroup ? "GroupMergeRequestsOverTime" : "ProjectMergeRequestsOverTime", links,
      show(data, { span, zone, bucket }) {
        const name = dated(zone, bucket);
        const sums = new Map();
        for (const row of (isGroup ? data.group.projects.nodes : [data.project]).flatMap(({ mergeRequestStats }) => mergeRequestStats ?? [])) {
          const sum = sums.get(row.bucketStart) ?? { bucketStart: row.bucketStart, opened: 0, merged: 0, closed: 0 };
          for (const each of ["opened", "merged", "closed"]) sum[each] += row[each];
          sums.set(row.bucketStart, sum);
        }
        const rows = inSpan([...sums.values()].sort((a, b) => Date.parse(a.bucketStart) - Date.parse(b.bucketStart)), span);
        const points = rows.map((row) => Date.parse(row.bucketStart));
        const total = (field) => rows.reduce((sum, row) => sum + row[field], 0);
        const say = reading("Counted when they were opened and when they were merged");
        const series = [
          { name: "merged", kind: "column", look: "column-merged", values: rows.map(({ merged }) => merged) },
          { name: "opened", kind: "line", look: "series-2", marker: "square", values: rows.map(({ opened }) => opened) },
        ];
        return {
          figures: [[count(total("merged")), "merged"], [count(total("opened")), "opened"], [count(total("closed")), "closed"]],
          chart: svg.overTime({ label: "Merge requests opened and merged; the table has the figures", span, points, series, zone, top: 4,
            read: (at) => say.say(at === null ? null : `${name(points[at])}: ${rows[at].merged} merged, ${rows[at].opened} opened, ${rows[at].closed} closed`) }),
          key: svg.key(series),
          below: say.element,
          columns: ["From", "Opened", "Merged", "Closed"],
          rows: rows.map((row) => [name(Date.parse(row.bucketStart)), count(row.opened), count(row.merged), count(row.closed)]),
          list: isGroup ? null : "project.mergeRequestStats",
        };
      } }),
    sent: sentMerges,
  };
}

function openByAge(page, { kind }, links) {
  const isGroup = kind === "group";
  return {
    ...card(page, { title: "Open merge requests by age", view: isGroup ? "group_open" : "project_open", operation: isGroup ? "GroupOpenMergeRequestsByAge" : "ProjectOpenMergeRequestsByAge", links,
      show(data, { span }) {
        const { totalCount, nodes } = (data.project ?? data.group).mergeRequests;
        const days = nodes.map(({ createdAt }) => (span[1] - Date.parse(createdAt)) / DAY);
        const ages = AGES.map(([most, name], at) => [name, days.filter((each) => each < most && each >= (AGES[at - 1]?.[0] ?? -Infinity)).length]);
        const largest = Math.max(...ages.map(([, number]) => number));
        return {
          figures: [[count(totalCount), "open"], ...(nodes.length ? [[svg.took(days[0] * 86_400), "oldest"]] : []), ...(totalCount > nodes.length ? [[count(nodes.length), "oldest shown"]] : [])],
          chart: h("dl.ages", null, ages.map(([name, number]) => h("div", null, h("dt", null, name), h("dd", null, svg.shares([[number, "NONE-FILLED"]], largest), h("span", null, count(number)))))),
          below: h("ol.changes", { "aria-label": "The oldest" }, nodes.slice(0, OLDEST).map((each) =>
            h("li", null, symbol(each.headCommit?.rollup?.state ?? "NONE"), h("a", { href: address(each.project.fullPath, "merge_requests", each.iid) }, `!${each.iid} ${each.title}`), h("span.quiet", null, each.author.name, ", ", ago(each.createdAt))))),
          columns: ["Merge request", "Author", "Opened", "Builds"],
          rows: nodes.map((each) => [h("a", { href: address(each.project.fullPath, "merge_requests", each.iid) }, `!${each.iid} ${each.title}`), each.author.name, ago(each.createdAt), labelOf(each.headCommit?.rollup?.state)]),
        };
      } }),
    sent: ({ path, requests }) => ({ path, requests: { ...requests, state: ["OPENED", "REOPENED"] } }),
  };
}

// Rankings

function flaky(page, { kind, path }, links) {
  const isGroup = kind === "group";
  return {
    ...card(page, { title: "Flaky jobs", wide: true, view: isGroup ? "group_flaky" : "project_flaky", operation: isGroup ? "GroupFlakyJobs" : "ProjectFlakyJobs", links,
      show(data) {
        const found = isGroup ? data.group.projects.nodes.flatMap(({ fullPath, name, flakyBuilds }) => (flakyBuilds?.nodes ?? []).map((each) => ({ ...each, fullPath, project: name }))) : data.project.flakyBuilds.nodes.map((each) => ({ ...each, fullPath: path }));
        found.sort((a, b) => b.flips - a.flips);
        return {
          figures: [[svg.took(found.reduce((sum, { wastedSeconds }) => sum + wastedSeconds, 0)), "wasted"]],
          chart: null,
          columns: [...(isGroup ? ["Project"] : []), "Job", "Flips", "Runs", "Share", "Wasted", "Merge requests held up"],
          rows: found.map((each) => [...(isGroup ? [each.project] : []), h("a", { href: `${address(each.fullPath, "builds")}?${new URLSearchParams({ status: "all", job: each.name })}` }, each.name), count(each.flips), count(each.runs),
            h("span.share", null, svg.shares([[each.rate, "FAILED"]], 1), percent(each.rate)), svg.took(each.wastedSeconds), count(each.blockedMergeRequests)]),
        };
      } }),
    sent: ({ path, since }) => ({ path, since }),
  };
}

const ranked = (rows, first, href) => ({
  chart: null,
  columns: [first, "Builds", "Passed and failed", "Rate", "Retried", "p50", "p95"],
  rows: rows.map(([name, row]) => [href?.(row) ? h("a", { href: href(row) }, name) : name, count(row.counts.total),
    svg.shares([[row.counts.success, "SUCCESS"], [row.counts.failed, "FAILED"]], row.counts.total), percent(row.successRate), count(row.retried), svg.took(row.duration?.p50), svg.took(row.duration?.p95)]),
});
const byTotal = (a, b) => b.counts.total - a.counts.total;

/** The jobs of a project, or the projects of a group. */
function compared(page, { kind, path }, offer, links) {
  if (kind === "group") {
    return {
      ...card(page, { title: "Projects", wide: true, view: "group_projects", operation: "GroupProjectsCompared", links,
        show: ({ group: { buildStats: { rows } } }, { chosen }) => ranked(rows.sort(byTotal).map((row) => [row.project, row]), "Project", (row) => `${address(row.project)}/dashboard${toQuery(chosen)}`) }),
      sent: ({ path, builds }) => ({ path, builds }),
    };
  }
  return {
    ...card(page, { title: "Jobs", wide: true, view: "project_jobs", operation: "ProjectJobs", links,
      show({ project: { buildStats: { rows } } }, { chosen }) {
        offer("job", rows.map(({ name }) => name));
        return ranked(rows.sort((a, b) => (b.duration?.p50 ?? 0) - (a.duration?.p50 ?? 0)).map((row) => [row.name, row]), "Job, slowest first", (row) => buildList({ kind, path }, { ...chosen, job: row.name }));
      } }),
    sent: ({ path, builds }) => ({ path, builds }),
  };
}

function people(page, own, offer, links) {
  const isGroup = own.kind === "group";
  return {
    ...card(page, { title: "People and builds", wide: true, view: isGroup ? "group_people" : "project_people", operation: isGroup ? "GroupPeopleAndBuilds" : "ProjectPeopleAndBuilds", links,
      show(data, { chosen }) {
        const { rows } = (data.project ?? data.group).buildStats;
        offer("author", rows.map(({ author }) => author).filter(Boolean));
        return ranked(rows.sort(byTotal).map((row) => [row.author ?? "nobody", row]), "Person", (row) => (row.author ? buildList(own, { ...chosen, author: row.author }) : null));
      } }),
    sent: ({ path, builds }) => ({ path, builds }),
  };
}
