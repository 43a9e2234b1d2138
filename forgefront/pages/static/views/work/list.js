// The issues or the merge requests of a project, of a group, of the viewer or of all projects, with filters, counts and pages that stand in the address.

import { address } from "../../address.js";
import { h, replace } from "../../dom.js";
import { errorIn } from "../../graph.js";
import { showGroup } from "../../group/head.js";
import { empty } from "../../parts.js";
import { showProject } from "../../project/head.js";
import { pushOffer } from "../../project/push_offer.js";
import { keepFocus, renewal } from "../../renewing.js";
import { issueRow, mergeRequestRow, rows } from "../../rows.js";
import * as filters from "../../work/filters.js";
import { styles } from "../../work/styles.js";

export async function open(page) {
  const { path, name, section } = page.where;
  const kind = filters.KINDS[section];
  const place = path ? ofProject(page, path, kind) : name ? ofGroup(page, name, kind) : ofViewer(page, kind);
  let chosen = filters.read(page.query, kind);
  let newest = 0;

  const body = h("div", { role: "group", "aria-label": kind.heading, tabindex: -1 });
  const states = h("nav.chips", { "aria-label": "Filter by state" });
  const removable = h("div.chips", { role: "group", "aria-label": "Chosen filters" });
  const form = filters.form(kind, { change, offer: place.offer });
  const renew = () => read().then((answer) => answer && keepFocus(body, () => show(answer, { isRenewal: true })));
  const following = place.follow(renewal(page, renew));
  await styles();
  await following;

  const first = await read();
  place.show(first, [h("div.actions.spread.list-head", null, states, place.actions(first)), form.element, removable, body]);
  show(first);

  /** The data of the current choices; null if others were made meanwhile. */
  async function read() {
    const number = (newest += 1);
    const answer = await place.read(filters.variables(chosen, kind), chosen);
    return number === newest ? answer : null;
  }

  /** Applies other filters without leaving the page, as an entry of the browser's history. */
  async function change(changes) {
    const href = filters.addressOf(chosen, kind, changes);
    if (href === `${location.pathname}${location.search}`) return;
    page.setAddress(href, { push: true });
    chosen = filters.read(new URLSearchParams(location.search), kind);
    body.ariaBusy = "true";
    const now = chosen;
    try {
      const answer = await read();
      if (!answer) return;
      show(answer);
      const count = answer.counts[chosen.state];
      page.announce(count === 1 ? `1 ${kind.noun}` : `${count} ${kind.nouns}`);
    } catch (error) {
      if (error.name !== "AbortError" && chosen === now) replace(body, h("p.wrong", { role: "alert" }, error.message));
    } finally {
      if (chosen === now) body.ariaBusy = "false";
    }
  }

  function show({ list, counts, canCreate, createAddress }, { isRenewal = false } = {}) {
    form.show(chosen, { isRenewal });
    keepFocus(states, () => replace(states, Object.entries(kind.states).map(([state, [word]]) =>
      h("a", { href: filters.addressOf(chosen, kind, { state }), "aria-current": state === chosen.state ? "true" : null }, word, h("b", null, String(counts[state])))),
    place.scopes?.(chosen)));
    keepFocus(removable, () => replace(removable, filters.removals(chosen, (changes) => (change(changes), body.focus({ preventScroll: true })))));
    removable.hidden = !removable.childElementCount;
    replace(body, list.nodes.length ? [rows(list.nodes, place.row, ""), turning(list.pageInfo)] : nothing({ counts, canCreate, createAddress }));
  }

  function turning({ hasNextPage, hasPreviousPage, startCursor, endCursor }) {
    // A page that is reached backwards has a next one, even where the service does not count it.
    const next = hasNextPage || Boolean(chosen.before);
    const previous = hasPreviousPage || Boolean(chosen.after);
    if (!next && !previous) return null;
    const to = (word, changes, there) => (there ? h("a.button", { href: filters.addressOf(chosen, kind, { after: "", before: "", ...changes }), rel: "nofollow" }, word) : null);
    return h("nav.actions.turning", { "aria-label": "Pages" }, to("First", {}, previous), to("Previous", { before: startCursor }, previous), to("Next", { after: endCursor }, next));
  }

  /** Why the list is empty, and what can be done. */
  function nothing({ counts, canCreate, createAddress }) {
    const create = canCreate ? h("a.button.primary", { href: createAddress }, `New ${kind.noun}`) : null;
    if (chosen.after || chosen.before) return empty("This page is empty", h("a", { href: filters.addressOf(chosen, kind, { after: "", before: "" }) }, "Go to the first page"));
    const others = Object.entries(kind.states).filter(([state]) => state !== chosen.state && state !== "all" && counts[state]);
    const elsewhere = others.length
      ? h("span", null, "There are ", others.map(([state, [word]], index) => [index ? " and " : "", h("a", { href: filters.addressOf(chosen, kind, { state }) }, `${counts[state]} ${word}`)]), ".")
      : null;
    if (filters.isNarrowed(chosen))
      return empty(`No ${kind.noun} matches`, elsewhere, h("a.button", { href: filters.addressOf(chosen, kind, filters.WITHOUT) }, "Clear the filters"));
    if (elsewhere) return empty(`No ${kind.states[chosen.state][0]} ${kind.nouns}`, elsewhere, create);
    return empty(`No ${kind.nouns} yet`, place.advice, create);
  }
}

// The three places. Each reads `{list, counts, canCreate, createAddress}`, shows the head, and suggests values for filters.

const answerOf = (holder, kind, more) => ({
  holder,
  list: holder.list,
  counts: Object.fromEntries(Object.keys(kind.states).map((state) => [state, holder[state].totalCount])),
  ...more,
});

const rowIn = (kind, pathOf) => (each) => (kind.section === "issues" ? issueRow : mergeRequestRow)(pathOf(each), { placed: true })(each);

/** People whose name or user name contains a text. */
async function people(page, text) {
  const { users } = await page.request("People", { search: text || null });
  const own = page.viewer.username;
  return [[own, "you"], ...users.nodes.filter(({ username }) => username !== own).map(({ username, name }) => [username, name])];
}

function ofProject(page, path, kind) {
  const isIssues = kind.section === "issues";
  let known = null;
  return {
    advice: isIssues ? "Issues track tasks, decisions and bugs." : "Push a branch, then create a merge request for it.",
    async read(variables) {
      const data = await page.request(isIssues ? "ProjectIssues" : "ProjectMergeRequests", { path, ...variables });
      const { project } = data;
      if (!project) throw page.missing("project");
      if (!project.list) throw errorIn(data);
      const can = project.viewerCan;
      return answerOf(project, kind, { canCreate: isIssues ? can.createIssue : can.createMergeRequest, createAddress: address(path, kind.section, "new") });
    },
    show: ({ holder }, content) => showProject(page, holder, kind.section, isIssues ? null : pushOffer(page, path), content),
    actions: ({ canCreate, createAddress }) => h("div.actions", null,
      h("a.button", { href: address(path, "labels") }, "Labels"), h("a.button", { href: address(path, "milestones") }, "Milestones"),
      canCreate ? h("a.button.primary", { href: createAddress }, `New ${kind.noun}`) : null),
    row: (isIssues ? issueRow : mergeRequestRow)(path),
    follow: (soon) => Promise.all((isIssues ? ["IssuesChanged"] : ["Changed", "Builds"]).map((operation) => page.follow(operation, { path }, { event: soon, gap: soon }))),
    async offer(name, text) {
      if (name === "author" || name === "assignee") return people(page, text);
      known ??= page.request("Choices", { path });
      const { project } = await known;
      return name === "label" ? project.labels.nodes.map((each) => [each.name, each.description ?? ""]) : project.milestones.nodes.map((each) => [each.title, each.state === "CLOSED" ? "closed" : ""]);
    },
  };
}

function ofGroup(page, path, kind) {
  return {
    advice: `No project of this group has ${kind.nouns} that you can see.`,
    async read(variables) {
      const { group } = await page.request(kind.section === "issues" ? "GroupIssues" : "GroupMergeRequests", { path, ...variables });
      if (!group) throw page.missing("group");
      return answerOf(group, kind, { canCreate: false });
    },
    show: ({ holder }, content) => showGroup(page, holder, kind.section, content),
    actions: () => null,
    row: rowIn(kind, ({ project }) => project.fullPath),
    follow: () => null,
    offer: async (name, text) => (name === "author" || name === "assignee" ? people(page, text) : []),
  };
}

function ofViewer(page, kind) {
  const scopes = [["assigned", "assigned to you"], ["created", "created by you"], ["all", "of all projects"]];
  const isAll = page.query.get("scope") === "all";
  const heading = isAll ? `${kind.heading} of all projects` : `Your ${kind.nouns}`;
  return {
    advice: isAll ? `The ${kind.nouns} of all projects that you can see.` : `The ${kind.nouns} of all projects that you created or are assigned to.`,
    async read(variables, { scope }) {
      const answer = await page.request(kind.section === "issues" ? "OwnIssues" : "OwnMergeRequests", { scope: scope.toUpperCase(), ...variables });
      return answerOf(answer, kind, { canCreate: false });
    },
    show(_, content) {
      page.title(heading);
      const other = Object.values(filters.KINDS).find((each) => each !== kind);
      page.show(h("header.page-head", null, h("h1", null, heading), h("a.button", { href: `${address("-", other.section)}${isAll ? "?scope=all" : ""}` }, other.heading)), content);
    },
    actions: () => null,
    scopes: (chosen) => scopes.map(([scope, word]) =>
      h("a", { href: filters.addressOf(chosen, kind, { scope }), "aria-current": scope === chosen.scope ? "true" : null }, word)),
    row: rowIn(kind, ({ project }) => project.fullPath),
    follow: () => null,
    offer: async (name, text) => (name === "author" || name === "assignee" ? people(page, text) : []),
  };
}
