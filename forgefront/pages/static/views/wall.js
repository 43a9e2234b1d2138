// The wall: all visible projects of the instance or of one group, failing ones first.

import { address } from "../address.js";
import { builds as lastBuilds } from "../dashboards/svg.js";
import { h, replace } from "../dom.js";
import { groupTabs } from "../group/head.js";
import { ago, avatar, badge, empty, failing, icon, lasted, more, symbol, labelOf } from "../parts.js";
import { rotate, screenSeconds } from "../dashboards/screen.js";

const ORDER = ["FAILED", "RUNNING", "PENDING", "CANCELED", "SUCCESS", "NONE"];
const MAX_FOLLOWED = 50;
/** Milliseconds for which changes of builds are collected before their projects are reloaded. */
const PAUSE = 300;

export async function open(page) {
  const group = page.where.name;
  const tiles = new Map();
  const changed = new Set();
  const chosen = { state: page.query.get("state") ?? "", search: page.query.get("search") ?? "" };
  let total = 0;
  let hasFurther = false;
  /** The text that the service searched, and the paths of the projects that it found. */
  let searched = chosen.search;
  const found = new Set();
  let gathering = null;
  let [followed, endHeads] = [new Set(), new AbortController()];

  const position = await page.follow("Builds", {}, {
    event: ({ buildChanged }) => touch(buildChanged.build.project.fullPath),
    gap: () => page.opened.then(() => [...tiles.keys()].forEach(touch)),
  });

  const read = async (search, after = null) => {
    const data = await page.request(group ? "GroupWall" : "Wall", { search: search || null, after, ...(group && { group }) });
    if (group && !data.group) throw page.missing("group");
    return { ...(group ? data.group : data), searched: search };
  };
  const first = await read(chosen.search);

  const list = h("ul.wall", { "data-walk": true, "aria-label": "Projects" });
  const chips = h("div.chips", { role: "group", "aria-label": "Filter by state" });
  const nothing = h("div", { hidden: true });
  const footer = h("div");
  const field = h("input", { type: "search", id: "filter", placeholder: "Filter projects", "aria-label": "Filter projects by name", value: chosen.search, autocomplete: "off", "data-filter": true, oninput: filterSoon });

  page.title(group ? first.name : "Projects", group ? [[first.name, address("groups", first.path)]] : []);
  take(first);
  page.show(
    h("header.page-head", null, h("h1", null, group ? first.name : "Projects"),
      h("div.actions", null,
        h("a.button", { href: `${location.pathname}?screen=20`, title: "Wall mode for a screen: no controls, pages rotate" }, "Screen"),
        !group && page.viewer.canCreateGroup ? h("a.button", { href: address("-", "new_group") }, "New group") : null,
        group && !first.viewerCan.createProject ? null : h("a.button", { href: group ? `${address("-", "new_project")}?namespace=${encodeURIComponent(group)}` : address("-", "new_project") }, "New project"))),
    group && first.description ? h("p.quiet", null, first.description) : null,
    group ? groupTabs(first) : null,
    h("div.page-head", null, chips, h("div.filter", null, field, h("kbd", { "aria-hidden": "true" }, "/"))),
    list, nothing, footer);
  const seconds = screenSeconds(page);
  // Tiles are sorted again at each step, since nobody clicks them on a screen.
  if (seconds) rotate(page, seconds, list, () => (add([]), [...list.children]));

  // Nothing waits for this stream: it starts at the position of the other, which was before the projects were read.
  followHeads(position);

  // Rendering

  function take(answer) {
    // Those of a search are shown beside those that were loaded before: the service does not search the names of groups.
    if (!answer.searched) tiles.clear();
    found.clear();
    hasFurther = answer.projects.pageInfo.hasNextPage;
    total = answer.projects.totalCount;
    add(answer.projects.nodes);
    replace(footer, more(answer.projects.pageInfo, async (after) => {
      const next = await read(answer.searched, after);
      hasFurther = next.projects.pageInfo.hasNextPage;
      add(next.projects.nodes);
      followHeads();
      return next.projects.pageInfo;
    }, "Show more projects"));
  }

  function add(projects) {
    for (const project of projects) {
      found.add(project.fullPath);
      tiles.set(project.fullPath, { project, state: stateOf(project), element: tile(project) });
    }
    const sorted = [...tiles.values()].sort((a, b) => ORDER.indexOf(a.state) - ORDER.indexOf(b.state));
    replace(list, sorted.map(({ element }) => element));
    narrow();
  }

  /** Shows the projects that match the filter. Tiles do not move, so that no click hits the wrong one. */
  function narrow() {
    const wanted = chosen.search.trim().toLowerCase();
    const isSearched = wanted === searched.trim().toLowerCase();
    const counts = Object.fromEntries(ORDER.map((state) => [state, 0]));
    let shown = 0;
    for (const { project, state, element } of tiles.values()) {
      // The service also searches the descriptions, which tiles do not have.
      const named = isNamed(project, wanted) || (isSearched && found.has(project.fullPath));
      counts[state] += named ? 1 : 0;
      element.hidden = !named || Boolean(chosen.state && chosen.state !== state);
      shown += element.hidden ? 0 : 1;
    }
    const all = Object.values(counts).reduce((sum, count) => sum + count, 0);
    const whole = !wanted && tiles.size < total ? `${all} of ${total}` : wanted && isSearched && hasFurther ? `${all}+` : all;
    replace(chips, chip("", "All", whole), ORDER.filter((state) => counts[state] || chosen.state === state).map((state) => chip(state, labelOf(state), counts[state])));
    nothing.hidden = shown > 0;
    if (!shown) replace(nothing, tiles.size || wanted ? empty("No matches", "No project matches this filter.") : empty("No projects yet", "You cannot see any project yet: ask to be added to one, or create your own."));
  }

  function chip(state, word, count) {
    const press = () => {
      chosen.state = state;
      remember();
      narrow();
      chips.querySelector("[aria-pressed=true]")?.focus();
    };
    return h("button", { type: "button", "aria-pressed": String(chosen.state === state), "data-state": state || null, onclick: press },
      state ? symbol(state).firstChild : null, word, h("b", null, String(count)));
  }

  // The filter: loaded projects at once; all projects after a moment, if not all are loaded.

  let timer = null;
  page.signal.addEventListener("abort", () => clearTimeout(timer));

  function filterSoon() {
    chosen.search = field.value;
    narrow();
    clearTimeout(timer);
    timer = setTimeout(filterAll, 250);
  }

  async function filterAll() {
    remember();
    const wanted = chosen.search.trim();
    const whole = !searched && tiles.size === total;
    if (wanted === searched || whole) return;
    try {
      const answer = await read(wanted);
      if (chosen.search.trim() !== wanted) return;
      searched = wanted;
      take(answer);
      followHeads();
    } catch (error) {
      if (error.name !== "AbortError" && chosen.search.trim() === wanted) replace(footer, h("p.wrong", { role: "alert" }, error.message));
    }
  }

  function remember() {
    const query = new URLSearchParams(Object.entries(chosen).filter(([, value]) => value));
    page.setAddress(`${location.pathname}${query.size ? `?${query}` : ""}`);
  }

  // Live updates

  /**
   * Builds have their own events; this stream reports pushes and external statuses. It is opened again when there are further projects,
   * which are read again if it does not start at a position before they were read.
   */
  function followHeads(afterSeq = null) {
    const projects = [...tiles.values()].filter(({ project }) => project.viewerCan.readCode).map(({ project }) => project.fullPath).slice(0, MAX_FOLLOWED);
    const further = projects.filter((path) => !followed.has(path));
    if (!further.length) return;
    followed = new Set(projects);
    endHeads.abort();
    endHeads = new AbortController();
    const handlers = { event: ({ branchHealthChanged }) => touch(branchHealthChanged.project.fullPath), gap: () => projects.forEach(touch), until: endHeads.signal };
    page.follow("Heads", { projects, ...(afterSeq && { afterSeq }) }, handlers).then(() => afterSeq ?? further.forEach(touch));
  }

  function touch(path) {
    changed.add(path);
    gathering ??= setTimeout(renew, PAUSE);
  }

  async function renew() {
    await page.opened;
    const paths = [...changed].filter((path) => tiles.has(path));
    changed.clear();
    if (!paths.length) return void (gathering = null);
    await Promise.all(paths.map(async (path) => {
      try {
        const { project } = await page.request("Tile", { path });
        const old = tiles.get(path);
        if (!project || !old || page.signal.aborted) return;
        const state = stateOf(project);
        const element = tile(project);
        const focused = old.element.contains(document.activeElement);
        element.classList.toggle("changed", state !== old.state);
        old.element.replaceWith(element);
        if (focused) element.querySelector("[data-item]").focus({ preventScroll: true });
        tiles.set(path, { project, state, element });
        if (state !== old.state) page.announce(`${project.name}: ${labelOf(state)}.`);
      } catch (error) {
        if (error.name !== "AbortError" && error.code !== "NOT_FOUND") changed.add(path);
      }
    }));
    narrow();
    gathering = changed.size && !page.signal.aborted ? setTimeout(renew, 10 * PAUSE) : null;
  }
}

const isNamed = ({ namespace, name, fullPath }, wanted) => `${namespace.name} ${name} ${fullPath}`.toLowerCase().includes(wanted);
const stateOf = (project) => project.branch?.target?.rollup?.state ?? "NONE";

function tile(project) {
  const target = project.branch?.target;
  const rollup = target?.rollup;
  const state = stateOf(project);
  return h("li.tile", { "data-state": state, "data-box": true, "data-path": project.fullPath },
    h("div.tile-head", null,
      h("div.tile-name", null,
        h("h2", null, h("a", { href: address(project.fullPath), "data-item": true }, project.name)),
        h("p", null, project.namespace.name, project.branch ? [" · ", icon("branch"), " ", project.branch.name] : null)),
      badge(state)),
    h("p.tile-title", null, target ? target.title : h("span.quiet", null, why(project))),
    target ? h("p.tile-meta", null, avatar(target.author, target.authorName), h("span.person", null, h("span", null, target.author?.name ?? target.authorName)), ago(target.committedAt)) : null,
    project.builds?.nodes.length > 1 ? lastBuilds(project.builds.nodes) : null,
    h("div.tile-foot", null, rollup ? foot(rollup) : null));
}

function why(project) {
  if (!project.viewerCan.readCode) return "You may not see the code of this project.";
  return project.defaultBranch ? "Its newest commit cannot be read." : "No commit yet.";
}

/** Failing checks, or progress, or the number of passed checks; and the duration. */
function foot(rollup) {
  const { counts } = rollup;
  const ended = counts.total - counts.pending - counts.running;
  let what = null;
  if (rollup.failing.length) what = failing(rollup.failing, rollup.failing.length > 3 ? counts.failed : 0);
  else if (rollup.state === "RUNNING" || rollup.state === "PENDING") what = [bar(ended, counts.total, rollup.state), h("span", null, `${ended} of ${counts.total}`)];
  else if (counts.total) what = h("span", null, counts.failed ? `${counts.success} passed, ${counts.failed} allowed to fail` : `${counts.success} of ${counts.total} passed`);
  return [what, lasted(rollup)];
}

function bar(done, total, state) {
  const filled = h("span", { "data-state": state });
  filled.style.width = `${total ? (100 * done) / total : 0}%`;
  return h("span.bar", { role: "progressbar", "aria-valuenow": done, "aria-valuemin": 0, "aria-valuemax": total, "aria-label": "Finished builds" }, filled);
}
