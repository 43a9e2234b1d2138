// The box that finds projects, people and issues, and in a project also merge requests, branches, commits and files.

import { address } from "../address.js";
import { h, replace } from "../dom.js";
import * as graph from "../graph.js";
import { labelOf } from "../parts.js";
import { fileAddress, folderAddress, searchAddress } from "../repository/addresses.js";

const DELAY_MS = 150;
const MAX_SHOWN = 5;
const COMMIT_ID = /^[0-9a-f]{7,40}$/i;
/** The number of an issue, of a merge request, or of either. */
const NUMBER = /^([#!]?)(\d{1,9})$/;
const NO_COMMIT = "0000000";

let dialog = null;

/** Opens the box until `signal` is aborted. `path` is the project of the page, or null; `go(address)` opens a page. */
export function openBox(path, go, signal) {
  if (dialog) return;
  let work = new AbortController();
  let timer = 0;
  /** Whether the person has chosen a result, which stays chosen when further ones arrive. */
  let hasMoved = false;
  /** Whether the results are not those of the text yet, and whether Enter was pressed meanwhile, which opens the first of them. */
  let [isSearching, opensFirst] = [false, false];
  const field = h("input", {
    id: "find-field", type: "search", role: "combobox", autofocus: true, autocomplete: "off", spellcheck: "false", maxlength: 200, "aria-label": "Find",
    "aria-controls": "find-results", "aria-expanded": "false", "aria-autocomplete": "list",
    placeholder: path ? `Find in ${path}, projects and people` : "Find projects, people and issues",
    oninput: () => {
      clearTimeout(timer);
      // Answers about an earlier text would be shown, and the first result opened by Enter.
      work.abort();
      isSearching = true;
      opensFirst = false;
      timer = setTimeout(search, DELAY_MS);
    },
    onkeydown: press,
  });
  const results = h("div.find-results", { id: "find-results", role: "listbox", "aria-label": "Results" });
  const note = h("p.quiet.find-note", { role: "status" });
  dialog = h("dialog.find", { "aria-label": "Find", onclose: close, onclick: (event) => event.target === dialog && dialog.close() }, field, results, note);
  document.body.append(dialog);
  dialog.showModal();
  const leave = () => dialog?.close();
  signal.addEventListener("abort", leave);

  function close() {
    signal.removeEventListener("abort", leave);
    clearTimeout(timer);
    work.abort();
    dialog.remove();
    dialog = null;
  }

  async function search() {
    work.abort();
    work = new AbortController();
    const { signal } = work;
    const text = field.value.trim();
    hasMoved = false;
    if (!text) {
      isSearching = false;
      show([]);
      note.textContent = "";
      return;
    }
    const isRev = COMMIT_ID.test(text);
    const number = NUMBER.exec(text);
    try {
      // The files are read by a process, so the rest does not wait for them.
      const files = path ? graph.request("find", "FindFiles", { text, path }, { signal }).catch(() => null) : null;
      const data = path
        ? await graph.request("find", "FindInProject", { text, path, isRev, rev: isRev ? text.toLowerCase() : NO_COMMIT, isNumber: Boolean(number), number: Number(number?.[2] ?? 0) }, { signal })
        : await graph.request("find", "Find", { text }, { signal });
      if (signal.aborted) return;
      isSearching = false;
      show(groupsOf(data, path, text, null));
      const found = await files;
      if (signal.aborted) return;
      if (found) show(groupsOf(data, path, text, found.project?.searchPaths));
      note.textContent = options().length ? "" : "Nothing was found.";
    } catch (error) {
      if (error.name === "AbortError" || signal.aborted) return;
      // What is shown was found for another text.
      isSearching = opensFirst = false;
      show([]);
      note.textContent = error.message;
    }
  }

  const options = () => [...results.querySelectorAll("[role=option]")];

  function show(groups) {
    const before = hasMoved ? results.querySelector("[aria-selected=true]")?.getAttribute("href") : null;
    let number = 0;
    replace(results, groups.filter(([, rows]) => rows.length).map(([name, rows]) => h("div", { role: "group", "aria-label": name },
      h("p.find-group", { "aria-hidden": "true" }, name),
      rows.map(([href, word, about]) => h("a.find-row", { id: `find-${number++}`, role: "option", tabindex: -1, href, "aria-selected": "false", onclick: () => dialog?.close() },
        h("span.find-word", null, word), about ? h("span.find-about", null, about) : null)))));
    const all = options();
    field.setAttribute("aria-expanded", String(all.length > 0));
    if (opensFirst && all[0]) choose(all[0]);
    mark((before && all.find((each) => each.getAttribute("href") === before)) || all[0]);
  }

  function choose({ href }) {
    opensFirst = false;
    dialog.close();
    go(href);
  }

  function mark(option) {
    for (const each of options()) each.setAttribute("aria-selected", String(each === option));
    if (option) field.setAttribute("aria-activedescendant", option.id);
    else field.removeAttribute("aria-activedescendant");
    option?.scrollIntoView({ block: "nearest" });
  }

  function press(event) {
    const all = options();
    const at = all.findIndex((each) => each.ariaSelected === "true");
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      hasMoved = true;
      if (all.length) mark(all[(at + (event.key === "ArrowDown" ? 1 : -1) + all.length) % all.length]);
    } else if (event.key === "Enter" && isSearching) {
      event.preventDefault();
      // What is marked was found for another text.
      opensFirst = true;
    } else if (event.key === "Enter" && all[at]) {
      event.preventDefault();
      choose(all[at]);
    } else if (event.key === "Enter") {
      event.preventDefault();
      isSearching = opensFirst = true;
      search();
    }
  }
}

function groupsOf({ projects, users, groups, issues, assignedIssues, mergeRequests, assignedMergeRequests, project }, path, text, files) {
  const workRow = (section, sign) => ({ iid, title, state, project: own }) =>
    [address(own?.fullPath ?? path, section, iid), `${sign}${iid} ${title}`, own ? `${own.fullPath}, ${labelOf(state)}` : labelOf(state)];
  const lower = text.toLowerCase();
  const sign = NUMBER.exec(text)?.[1];
  /** The rows of several lists, each once. */
  const workRows = (section, mark, lists) => {
    const found = lists.flatMap((list) => list?.nodes ?? []).map(workRow(section, mark));
    return found.filter(([href], at) => found.findIndex((each) => each[0] === href) === at).slice(0, MAX_SHOWN);
  };
  return [
    ["Commits", project?.commit ? [[address(path, "commit", project.commit.oid), project.commit.title, project.commit.shortOid]] : []],
    ["Issues", workRows("issues", "#", [sign === "!" ? null : project?.numberedIssues, project?.issues ?? issues, assignedIssues])],
    ["Merge requests", workRows("merge_requests", "!", [sign === "#" ? null : project?.numberedMergeRequests, project?.mergeRequests ?? mergeRequests, assignedMergeRequests])],
    ["Branches", (project?.branches?.nodes ?? []).filter(({ name }) => name.toLowerCase().includes(lower)).slice(0, MAX_SHOWN).map(({ name }) => [folderAddress(path, "", name), name])],
    ["Files", (files?.matches ?? []).slice(0, MAX_SHOWN).map(({ path: place }) => [fileAddress(path, place), place])],
    ["Projects", projects.nodes.map(({ fullPath, description }) => [address(fullPath), fullPath, description])],
    ["Groups", groups.nodes.map(({ path: place, name }) => [address("groups", place), name, place])],
    ["People", users.nodes.map(({ username, name }) => [address("u", username), name, `@${username}`])],
    ["In the text of files", files && project?.branches?.nodes.length ? [[searchAddress(path, null, text), `Search the files for “${text}”`]] : []],
  ];
}
