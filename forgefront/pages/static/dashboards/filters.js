// The filters of a dashboard, which stand in the address: range, time zone, branch, job, author.

import { h } from "../dom.js";

const DAY = 86_400_000;
/** Days, bucket and words of each range. */
const RANGES = { "7": ["DAY", "7 days"], "30": ["DAY", "30 days"], "90": ["WEEK", "90 days"], "365": ["MONTH", "12 months"] };
const DEFAULT_RANGE = "30";
const OWN_ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
const FIELDS = ["range", "zone", "branch", "job", "author"];

/** The choices of an address: strings, empty where nothing is chosen. */
export function read(query) {
  const found = Object.fromEntries(FIELDS.map((name) => [name, query.get(name)?.trim() ?? ""]));
  if (!Object.hasOwn(RANGES, found.range)) found.range = DEFAULT_RANGE;
  if (!isZone(found.zone)) found.zone = OWN_ZONE;
  return found;
}

/** The query string of choices, without those that are the default. */
export function toQuery(chosen, more = {}) {
  const query = new URLSearchParams(Object.entries({ ...chosen, ...more }).filter(([name, value]) => value && !(name === "range" && value === DEFAULT_RANGE) && !(name === "zone" && value === OWN_ZONE)));
  return query.size ? `?${query}` : "";
}

/** What the choices are for the graph; `now` in milliseconds. `branch` is that of builds: null is the default branch. */
export function variables(chosen, now) {
  const since = new Date(now - Number(chosen.range) * DAY).toISOString();
  const until = new Date(now).toISOString();
  const author = chosen.author ? { authorUsername: [chosen.author] } : {};
  const target = chosen.branch && chosen.branch !== "*" ? { targetBranch: [chosen.branch] } : {};
  return {
    span: [now - Number(chosen.range) * DAY, now],
    since,
    until,
    bucket: RANGES[chosen.range][0],
    zone: chosen.zone,
    builds: {
      finished: { since, until },
      ...(chosen.branch === "*" ? {} : { ref: [chosen.branch || null] }),
      ...(chosen.job ? { name: [chosen.job] } : {}),
      ...author,
    },
    requests: { ...author, ...target },
  };
}

/** The form; `change()` is called after `chosen` has changed. Returns the element and `offer(name, values)`, which suggests values. */
export function form(chosen, { branches = null, change }) {
  const lists = {};
  const set = (name) => (event) => {
    const value = event.target.value.trim();
    event.target.setCustomValidity(name === "zone" && value && !isZone(value) ? "This is not the name of a time zone, such as Europe/Helsinki." : "");
    if (!event.target.reportValidity() || value === chosen[name]) return;
    chosen[name] = name === "zone" ? value || OWN_ZONE : value;
    change();
  };
  const text = (name, word, placeholder, values) => {
    lists[name] = h("datalist", { id: `known-${name}` }, values.map((value) => h("option", { value })));
    return h("label.choice", null, h("span", null, word),
      h("input", { name, value: chosen[name], placeholder, list: `known-${name}`, autocomplete: "off", spellcheck: "false", onchange: set(name) }), lists[name]);
  };
  const element = h("form.choices", { "aria-label": "Filters", onsubmit: (event) => event.preventDefault() },
    h("label.choice", null, h("span", null, "Range"),
      h("select", { name: "range", onchange: set("range") }, Object.entries(RANGES).map(([value, [, word]]) => h("option", { value, selected: value === chosen.range }, word)))),
    text("branch", "Branch", "default branch", branches ?? []),
    text("job", "Job", "all jobs", []),
    text("author", "Author", "everybody", []),
    text("zone", "Time zone", OWN_ZONE, Intl.supportedValuesOf?.("timeZone") ?? []));
  element.elements.branch.title = "The name of a branch; * for all";
  return {
    element,
    offer(name, values) {
      if (!lists[name].childElementCount) lists[name].append(...values.map((value) => h("option", { value })));
    },
  };
}

function isZone(name) {
  if (!name) return false;
  try {
    return Boolean(new Intl.DateTimeFormat("en", { timeZone: name }));
  } catch {
    return false;
  }
}
