// The filters of a list of issues or merge requests, which stand in the address.

import { h } from "../dom.js";

/** Words of each order, and what they are for the graph. */
const SORTS = {
  newest: ["Newest", "CREATED_AT", "DESC"],
  oldest: ["Oldest", "CREATED_AT", "ASC"],
  updated: ["Recently updated", "UPDATED_AT", "DESC"],
  quiet: ["Least recently updated", "UPDATED_AT", "ASC"],
};
const OPEN_REQUESTS = ["OPENED", "REOPENED"];

/** What differs between the two kinds: their words, the states in the address, and the field of the graph. */
export const KINDS = {
  issues: {
    section: "issues", connection: "issues", noun: "issue", nouns: "issues", heading: "Issues", sort: "newest",
    states: { opened: ["open", ["OPENED"]], closed: ["closed", ["CLOSED"]], all: ["all", null] },
  },
  merge_requests: {
    section: "merge_requests", connection: "mergeRequests", noun: "merge request", nouns: "merge requests", heading: "Merge requests", sort: "updated",
    states: { opened: ["open", OPEN_REQUESTS], merged: ["merged", ["MERGED"]], closed: ["closed", ["CLOSED"]], all: ["all", null] },
  },
};

const TEXTS = ["search", "milestone", "author", "assignee"];
const CURSORS = ["after", "before"];
export const PAGE_SIZE = 30;

/** The choices of an address. `label` is an array; others are strings, empty where nothing is chosen. */
export function read(query, kind) {
  const chosen = Object.fromEntries([...TEXTS, ...CURSORS].map((name) => [name, query.get(name)?.trim() ?? ""]));
  const state = query.get("state")?.toLowerCase();
  const sort = query.get("sort");
  return {
    ...chosen,
    label: [...new Set(query.getAll("label").map((name) => name.trim()).filter(Boolean))],
    state: Object.hasOwn(kind.states, state ?? "") ? state : "opened",
    sort: Object.hasOwn(SORTS, sort ?? "") ? sort : kind.sort,
    scope: ["created", "all"].includes(query.get("scope")) ? query.get("scope") : "assigned",
  };
}

/** The address of choices, without those that are the default. Any change but of the page begins at the first page. */
export function addressOf(chosen, kind, changes = {}) {
  const turns = CURSORS.some((name) => name in changes);
  const all = { ...chosen, ...(turns ? {} : { after: "", before: "" }), ...changes };
  const query = new URLSearchParams();
  for (const name of [...TEXTS, ...CURSORS]) if (all[name]) query.set(name, all[name]);
  for (const name of all.label) query.append("label", name);
  if (all.state !== "opened") query.set("state", all.state);
  if (all.sort !== kind.sort) query.set("sort", all.sort);
  if (all.scope !== "assigned") query.set("scope", all.scope);
  return `${location.pathname}${query.size ? `?${query}` : ""}`;
}

/** Whether anything but the state and the order is chosen. */
export const isNarrowed = (chosen) => Boolean(chosen.label.length || TEXTS.some((name) => chosen[name]));

/** The choices without filters; state, order and scope stay. */
export const WITHOUT = { search: "", milestone: "", author: "", assignee: "", label: [] };

/** The variables of the operation: the filter of the list, and one for the count of each state. */
export function variables(chosen, kind) {
  const filter = {
    ...(chosen.search && { search: chosen.search }),
    ...(chosen.label.length && { labels: chosen.label }),
    ...(chosen.milestone && { milestone: [chosen.milestone] }),
    ...(chosen.author && { authorUsername: [chosen.author] }),
    ...(chosen.assignee && { assigneeUsername: [chosen.assignee] }),
  };
  const ofState = (state) => {
    const values = kind.states[state][1];
    return values ? { ...filter, state: values } : filter;
  };
  const [, field, direction] = SORTS[chosen.sort];
  return {
    filter: ofState(chosen.state),
    ...Object.fromEntries(Object.keys(kind.states).map((state) => [state, ofState(state)])),
    order: { field, direction },
    ...(chosen.before ? { last: PAGE_SIZE, before: chosen.before } : { first: PAGE_SIZE, after: chosen.after || null }),
  };
}

/**
 * The form of the filters. `change(changes)` applies some. `offer(name, text)` returns values to suggest for a field, as
 * `[[value, words], …]`. Returns the element, and `show(chosen)`, which shows other choices.
 */
export function form(kind, { change, offer }) {
  const lists = {};
  const suggest = async (name, text) => {
    try {
      const found = await offer(name, text);
      lists[name].replaceChildren(...found.map(([value, words]) => h("option", { value }, words)));
    } catch {
      // Values can be typed without suggestions.
    }
  };
  const text = (name, word, placeholder) => {
    const id = `filter-${name}`;
    lists[name] = h("datalist", { id: `${id}-known` });
    let typing = null;
    return h("label.choice", { for: id }, h("span", null, word),
      h("input", {
        id, name, placeholder, list: `${id}-known`, autocomplete: "off", autocapitalize: "none", spellcheck: "false", maxlength: 255,
        onfocus: (event) => suggest(name, event.target.value.trim()),
        oninput(event) {
          clearTimeout(typing);
          typing = setTimeout(() => suggest(name, event.target.value.trim()), 200);
        },
        onchange(event) {
          const value = event.target.value.trim();
          if (name !== "label") change({ [name]: value });
          else if (value) change({ label: [...new Set([...current.label, value])] });
        },
      }), lists[name]);
  };
  let current = { label: [] };
  const search = h("input", {
    id: "filter-search", name: "search", type: "search", placeholder: "Words of the title", autocomplete: "off", maxlength: 255, "data-filter": true,
    onchange: (event) => change({ search: event.target.value.trim() }),
  });
  const sort = h("select", { id: "filter-sort", name: "sort", onchange: (event) => change({ sort: event.target.value }) },
    Object.entries(SORTS).map(([value, [word]]) => h("option", { value }, word)));
  const element = h("form.choices", { role: "search", "aria-label": `Filter ${kind.nouns}`, onsubmit },
    h("label.choice.wide", { for: "filter-search" }, h("span", null, "Title"), search),
    text("label", "Label", "any"), text("milestone", "Milestone", "any"), text("author", "Author", "anybody"), text("assignee", "Assignee", "anybody"),
    h("label.choice", { for: "filter-sort" }, h("span", null, "Order"), sort),
    h("button.unseen", { tabindex: -1 }, "Apply"));

  /** Enter in the field of the title goes on to the first row. */
  function onsubmit(event) {
    event.preventDefault();
    document.activeElement?.blur();
  }

  return {
    element,
    /** Shows the chosen filters. `isRenewal`: what is being typed is not applied yet, and stays. */
    show(chosen, { isRenewal = false } = {}) {
      current = chosen;
      const values = { ...chosen, label: "" };
      for (const name of [...TEXTS, "label"]) {
        const field = element.elements[name];
        if (!isRenewal || field !== document.activeElement) field.value = values[name];
      }
      sort.value = chosen.sort;
    },
  };
}

/** The chosen filters, each a button that removes it. */
export function removals(chosen, change) {
  const all = [
    ...(chosen.search ? [["title", chosen.search, { search: "" }]] : []),
    ...chosen.label.map((name) => ["label", name, { label: chosen.label.filter((each) => each !== name) }]),
    ...["milestone", "author", "assignee"].filter((name) => chosen[name]).map((name) => [name, chosen[name], { [name]: "" }]),
  ];
  return all.map(([name, value, changes]) =>
    h("button.removable", { type: "button", "aria-label": `Remove the filter ${name}: ${value}`, onclick: () => change(changes) }, h("span.removable-text", null, `${name}: ${value}`), h("span", { "aria-hidden": "true" }, "×")));
}
