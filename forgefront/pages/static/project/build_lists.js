// The builds of a project or a group: filters that stand in the address, and the builds of each commit by pipeline and stage.

import { address } from "../address.js";
import { h } from "../dom.js";
import { ago, avatar, lasted, symbol, labelOf } from "../parts.js";

const FIELDS = { ref: "Branch or tag", job: "Name", author: "Author" };

/** Fields that filter by names, and the choice between builds and commits, unless `commits` is false. */
export function buildFilters(page, { commits = true } = {}) {
  const to = (changes) => {
    const query = new URLSearchParams(page.query);
    for (const [name, value] of Object.entries(changes)) value ? query.set(name, value) : query.delete(name);
    return query.size ? `${location.pathname}?${query}` : location.pathname;
  };
  const submit = (event) => {
    event.preventDefault();
    page.go(to(Object.fromEntries([...new FormData(event.target)].map(([name, value]) => [name, value.trim()]))));
  };
  const byCommit = page.query.get("by") === "commit";
  return h("div.actions.start.spread.build-filters", null,
    h("form.chips", { role: "search", "aria-label": "Filter builds", onsubmit: submit },
      Object.entries(FIELDS).map(([name, word]) =>
        h("input", { type: "text", name, "aria-label": word, placeholder: word, maxlength: 255, autocapitalize: "none", autocomplete: "off", spellcheck: "false", value: page.query.get(name) ?? "" })),
      h("button", null, "Filter")),
    commits ? h("nav.chips", { "aria-label": "Show builds" },
      h("a", { href: to({ by: null }), "aria-current": byCommit ? null : "true" }, "one by one"),
      h("a", { href: to({ by: "commit" }), "aria-current": byCommit ? "true" : null }, "by commit")) : null);
}

/** A commit with its builds, by pipeline and stage. */
export const commitBuildsRow = (path) => (commit) => {
  const { nodes, totalCount } = commit.builds ?? { nodes: [], totalCount: 0 };
  const pipelines = pipelinesOf(nodes);
  const hidden = totalCount - nodes.length;
  return h("li.row.long", { "data-box": true },
    symbol(commit.rollup?.state ?? "NONE"),
    h("p.row-title", null, h("a", { href: address(path, "commit", commit.oid), "data-item": true, title: commit.title }, commit.title)),
    h("span.row-side", null, h("code", null, commit.shortOid)),
    h("div.row-meta", null,
      h("span.person", null, avatar(commit.author, commit.authorName), h("span", null, commit.author?.name ?? commit.authorName)), ago(commit.committedAt), commit.rollup ? lasted(commit.rollup) : null,
      pipelines.length ? null : h("span", null, commit.builds ? "No matching builds." : "You may not see its builds."),
      pipelines.map(({ ref, stages }) => h("ol.stages", { "aria-label": `Stages on ${ref}` },
        pipelines.length > 1 ? h("li.ref", null, ref) : null,
        stages.map(([stage, builds]) => h("li", null, h("span.stage", null, stage),
          builds.map((build) => h("a.stage-build", { href: address(path, "builds", build.databaseId) }, symbol(build.status, build.allowFailure && build.status === "FAILED" ? "failed (allowed to fail)" : labelOf(build.status)), build.name)))))),
      hidden > 0 ? h("a", { href: address(path, "commit", commit.oid) }, `${hidden} more`) : null));
};

/** `[{ref, stages: [[name, builds], …]}, …]`, newest pipeline first, stages in the order of their first builds. */
function pipelinesOf(builds) {
  const found = new Map();
  for (const build of builds.toSorted((one, other) => one.databaseId - other.databaseId)) {
    const key = build.pipeline?.databaseId ?? `ref ${build.ref}`;
    if (!found.has(key)) found.set(key, { ref: build.ref, stages: new Map() });
    const { stages } = found.get(key);
    if (!stages.has(build.stage)) stages.set(build.stage, []);
    stages.get(build.stage).push(build);
  }
  return [...found.values()].reverse().map(({ ref, stages }) => ({ ref, stages: [...stages] }));
}

/** The states of builds to choose from by the parameter `status`, and the other parameters of the address, each with its variables. */
export const BUILD_LIST = {
  filter: "status", choices: { "": null, FAILED: ["FAILED"], RUNNING: ["RUNNING"], PENDING: ["PENDING"], SUCCESS: ["SUCCESS"], CANCELED: ["CANCELED"], MANUAL: ["MANUAL"] },
  narrowed: { ref: (ref) => ({ ref: [ref] }), branch: (word) => (word === "default" ? { ref: [null] } : {}), job: (name) => ({ name: [name] }), author: (name) => ({ author: [name] }), days: (days) => ({ finished: { since: sinceDays(days) } }) },
};

/** The parameters of the address that narrow a list, and the variables for them. */
export function narrowedBy(page, { narrowed = {} }) {
  const found = Object.entries(narrowed).filter(([name]) => page.query.get(name));
  return { names: found.map(([name]) => name), variables: Object.assign({}, ...found.map(([name, make]) => make(page.query.get(name)))) };
}

export function chosenOf(page, list) {
  const wanted = page.query.get(list.filter)?.toUpperCase();
  const all = Object.keys(list.choices);
  return wanted === "ALL" ? "" : all.includes(wanted) ? wanted : all[0];
}

/** The states to choose from, with `counts` by the words of the address, and the other filters of the address, each a link that removes it. */
export function chips(page, list, chosen, narrowed, counts = {}) {
  const to = (changes) => {
    const query = new URLSearchParams(page.query);
    for (const [name, value] of Object.entries(changes)) value === null ? query.delete(name) : query.set(name, value);
    return `${location.pathname}?${query}`;
  };
  return h("nav.chips", { "aria-label": "Filter by state" },
    Object.keys(list.choices).map((state) => {
      const word = (state || "all").toLowerCase();
      return h("a", { href: to({ [list.filter]: word }), "aria-current": state === chosen ? "true" : null }, state ? labelOf(state) : "all", counts[word] === undefined ? null : [" ", h("b", null, counts[word])]);
    }),
    narrowed.map((name) => h("a.removable", { href: to({ [name]: null }), title: "Remove this filter" }, `${name}: ${page.query.get(name)}`, h("span", { "aria-hidden": "true" }, " ×"))));
}

/** A date cannot have the milliseconds of more. */
const MAX_DAYS = 36_500;

/** The timestamp of `days` days ago. */
const sinceDays = (days) => new Date(Date.now() - Math.min(MAX_DAYS, Math.max(1, Number.parseInt(days, 10) || 1)) * 86_400_000).toISOString();
