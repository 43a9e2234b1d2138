// The state of the instance: health, sizes, hosts, and the background jobs with their last errors.

import { adminAddress, requireAdmin, showAdmin } from "../../admin/page.js";
import { h, replace } from "../../dom.js";
import { ago, badge, duration, section, symbol } from "../../parts.js";
import { keepFocus, watch } from "../../renewing.js";
import { size } from "../../sizes.js";

const RENEWED = 10_000;
const JOB_STATES = { RUNNING: ["RUNNING", "running"], WAITING: ["SUCCESS", "waits for its next run"], FAILED: ["FAILED", "failed"], FINISHED: ["NONE", "finished"] };

export async function open(page) {
  requireAdmin(page);
  const parts = h("div.settings");
  const renew = async () => {
    const status = await page.request("Status");
    keepFocus(parts, () => replace(parts, sections(status)));
  };
  await renew();
  showAdmin(page, "status", parts);
  watch(page, RENEWED, renew);
}

function sections({ instanceStatus: status, users, groups, projects }) {
  const { healthChecks, hosts, backgroundJobs: jobs } = status;
  return [
    section("Health", null, h("ol.rows", null, healthChecks.map(({ name, problem }) =>
      h("li.row", null, symbol(problem ? "FAILED" : "SUCCESS", problem ? "failed" : "passed"), h("p.row-title", null, name), h("span.row-side"), problem ? h("p.row-meta", null, problem) : null)))),
    section("Sizes and versions", null, h("dl.table.card", null, facts(status, { users, groups, projects }).map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))))),
    hosts.length ? section("Hosts", null, h("ol.rows", null, hosts.map(host))) : null,
    section("Background jobs", h("span.part-side", null, `of the process ${status.process}`), h("ol.rows", { "aria-label": "Background jobs" }, sorted(jobs).map(job))),
  ];
}

function facts({ version, pythonVersion, database, disk, backlog }, { users, groups, projects }) {
  const { waitingBuilds, waitingDeliveries, oldestDeliverySeconds } = backlog;
  return [
    ["Forgefront", version],
    ["Python", pythonVersion],
    ["Database", `${database.version}, ${size(database.sizeBytes)}`],
    ["Disk", disk ? `${size(disk.freeBytes)} of ${size(disk.totalBytes)} free, where the repositories are` : "unknown"],
    ["Users", h("a", { href: adminAddress("users") }, String(users.totalCount))],
    ["Groups", groups.totalCount],
    ["Projects", projects.totalCount],
    ["Builds", `${waitingBuilds} wait for a runner`],
    ["Deliveries", waitingDeliveries ? `${waitingDeliveries} pending, the oldest for ${duration(oldestDeliverySeconds)}` : "none pending"],
  ];
}

const host = ({ name, address: at, version, startedAt, heartbeatAt, isLive }) =>
  h("li.row", null, symbol(isLive ? "SUCCESS" : "CANCELED", isLive ? "running" : "not running"), h("p.row-title", null, name), h("span.row-side", null, version),
    h("p.row-meta", null, h("span", null, at), h("span", null, "started ", ago(startedAt)), isLive ? null : h("span", null, "last seen ", ago(heartbeatAt))));

/** Failed jobs first. */
const sorted = (jobs) => [...jobs].sort((one, other) => (other.state === "FAILED") - (one.state === "FAILED"));

function job({ name, state, intervalSeconds, startedAt, finishedAt, runCount, failureCount, lastFailedAt, lastError }) {
  const [sign, word] = JOB_STATES[state];
  const isPeriodic = intervalSeconds !== null;
  const last = isPeriodic ? ["last run ", ago(finishedAt ?? startedAt)] : state === "FINISHED" ? ["finished ", ago(finishedAt)] : ["runs since ", ago(startedAt)];
  return h("li.row.job", null, symbol(sign, word), h("p.row-title", null, name), h("span.row-side", null, state === "FAILED" ? badge("FAILED", word) : word),
    h("p.row-meta", null, isPeriodic ? h("span", null, `every ${duration(intervalSeconds).replace(" 0 min", "")}`) : null, h("span", null, last),
      h("span", null, runCount === 1 ? "1 run" : `${runCount} runs`), failureCount ? h("span", null, failureCount === 1 ? "1 failure" : `${failureCount} failures`, ", the last ", ago(lastFailedAt)) : null),
    lastError ? h("p.row-meta.job-error", null, h("code", null, lastError)) : null);
}
