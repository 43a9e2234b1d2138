// The changes of a merge request, a commit or a comparison: the list of files, and the lines of each.

import { counted } from "../diff.js";
import { h, replace } from "../dom.js";
import { showError } from "../errors.js";
import * as graph from "../graph.js";
import { changedFile } from "./changed_file.js";
import { unresolvedOnly } from "./threads.js";

const OPEN_LINES = 600;
const WORDS = [["newFile", "new"], ["deletedFile", "deleted"], ["renamedFile", "renamed"]];
const LAYOUT = "forgefront.layout";
/** Side by side needs some 60 characters for each side. */
const WIDE = matchMedia("(min-width: 64rem)");

export const pathOf = (entry) => (entry.deletedFile ? entry.oldPath : entry.newPath);

/**
 * The files of a change; null where the repository could not be read. `readFile(path)` returns the text of a file after the change.
 * Those of a merge request also have `viewed`, the paths of the files that the viewer has viewed, `mark(path, viewed)`, which stores that
 * and throws what the service refuses, and `threads`, those on lines (`lineThreads`).
 */
export function changes(page, entries, { readFile, viewed = [], mark = null, threads = null }) {
  if (!entries) return h("p.quiet", null, "The repository cannot be read, so the changes are not shown.");
  if (!entries.length) return h("p.quiet", null, "No files changed.");
  let left = OPEN_LINES;
  const done = new Set(viewed.filter((path) => entries.some((entry) => pathOf(entry) === path)));
  const progress = mark ? h("span.quiet", { role: "status" }) : null;
  const showProgress = () => progress && (progress.textContent = `${done.size} of ${entries.length} viewed`);
  const files = entries.map((entry, at) => {
    const name = pathOf(entry);
    const change = mark && (async (value) => {
      await mark(name, value);
      if (value) done.add(name);
      else done.delete(name);
      showProgress();
    });
    const found = file(entry, at, { readFile, change, threads, done: done.has(name), open: left > 0 && !done.has(name) });
    if (!done.has(name)) left -= found.size;
    return found;
  });
  showProgress();
  const layout = layoutChoice(page, (wide) => files.forEach((each) => each.draw(wide)));
  const totals = entries.reduce((sum, { additions, deletions }) => ({ ...sum, additions: sum.additions + additions, deletions: sum.deletions + deletions }), { files: entries.length, additions: 0, deletions: 0 });
  const element = h("div.review");
  return replace(element,
    h("div.review-bar", null, counted(totals), progress, threads ? unresolvedOnly(element) : null, layout),
    !mark && files.length === 1 ? null : h("nav.file-list", { "aria-label": "Changed files" }, h("ol", null, files.map(({ link }) => h("li", null, link)))),
    h("ol.diffs", { "data-walk": true }, files.map(({ element }) => h("li", { "data-box": true }, element))));
}

function file(entry, at, { readFile, change, threads, done, open }) {
  const word = WORDS.find(([name]) => entry[name])?.[1];
  const counts = () => h("span.counted", null, h("b.added", null, `+${entry.additions}`), h("b.removed", null, `−${entry.deletions}`));
  const ownThreads = threads?.of(entry) ?? null;
  const body = changedFile(entry, { read: async () => linesOf(await readFile(entry.newPath)), threads: ownThreads });
  const wrong = h("p.wrong", { role: "alert", hidden: true });
  const box = h("input", { type: "checkbox", checked: done, onchange: store });
  const size = body.hunks.reduce((sum, { lines }) => sum + lines.length, 0);
  const summary = h("summary", { "data-item": true },
    h("span.diff-path", null, entry.renamedFile ? [entry.oldPath, " → "] : null, pathOf(entry)),
    word ? h("span.tag", null, word) : null, ownThreads?.count, counts());
  const element = h("details.diff", { open, id: `file-${at + 1}` }, summary,
    change ? h("div.diff-head", null, h("label.check", null, box, "Viewed", h("span.unseen", null, ` ${pathOf(entry)}`)), wrong) : null, body.element);
  let drawn = null;
  let wide = false;
  element.addEventListener("toggle", () => element.open && show());

  function show() {
    if (drawn !== wide) body.draw((drawn = wide));
  }
  function draw(value) {
    wide = value;
    if (element.open) show();
  }
  function reveal() {
    element.open = true;
    show();
    summary.focus({ preventScroll: true });
    element.scrollIntoView({ block: "start" });
  }
  function setDone(value) {
    link.classList.toggle("done", value);
    link.querySelector(".done-word").textContent = value ? "viewed" : "";
  }
  /** Stores the mark. A viewed file is closed, and the focus goes to its heading. */
  async function store() {
    const value = box.checked;
    wrong.hidden = true;
    try {
      await change(value);
      setDone(value);
      if (!value) return;
      element.open = false;
      summary.focus({ preventScroll: true });
      summary.scrollIntoView({ block: "nearest" });
    } catch (error) {
      if (error.name === "AbortError") return;
      box.checked = !value;
      element.open = true;
      showError(wrong, error);
    }
  }
  summary.addEventListener("keydown", (event) => {
    if (!change || event.key !== "v" || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    box.checked = !box.checked;
    store();
  });

  const link = h("a", { href: `#file-${at + 1}`, title: pathOf(entry), onclick: (event) => (event.preventDefault(), reveal()) },
    h("span.file-name", null, h("bdi", null, pathOf(entry))), h("span.done-word"), counts());
  setDone(done);
  return { element, link, draw, size };
}

/** The lines of a text without the end of the last one; null for none. */
function linesOf(text) {
  if (text === null) return null;
  const lines = text.split("\n").map((each) => each.replace(/\r$/, ""));
  if (lines.at(-1) === "") lines.pop();
  return lines;
}

/** Buttons for one column or two. The choice is kept in this browser; a narrow window always has one column. */
function layoutChoice(page, draw) {
  const choices = [["unified", "One column"], ["split", "Side by side"]].map(([name, word]) =>
    h("button", { type: "button", "data-layout": name, onclick: () => choose(name) }, word));
  const show = () => {
    const wide = WIDE.matches && stored() === "split";
    for (const each of choices) each.setAttribute("aria-pressed", String((each.dataset.layout === "split") === wide));
    draw(wide);
  };
  const choose = (name) => {
    try {
      localStorage.setItem(LAYOUT, name);
    } catch {
      // Storage is unavailable: the choice is lost with the page.
    }
    memory = name;
    show();
  };
  WIDE.addEventListener("change", show, { signal: page.signal });
  const element = h("div.clone.layout", { role: "group", "aria-label": "Layout of the lines" }, choices);
  show();
  return element;
}

let memory = null;

function stored() {
  try {
    return memory ?? localStorage.getItem(LAYOUT);
  } catch {
    return memory;
  }
}

/** Returns a function that reads the text of a file at a commit; null where it cannot be shown. */
export const fileReader = (page, path, ref) => async (file) => {
  const blob = (await graph.request("repository/file_text", "FileText", { path, ref, file }, { signal: page.signal })).project?.blob;
  return blob?.truncated ? null : blob?.text ?? null;
};
