// The output of a build with its controls: search, follow, fold, download. It is read from its beginning by a subscription, which
// continues while the build runs.

import { base } from "../address.js";
import { doing } from "../discussion.js";
import { h } from "../dom.js";
import { save } from "../project/downloads.js";
import { size } from "../sizes.js";
import { sheet } from "../styles/sheets.js";
import { patternOf, search, labelOf } from "./search.js";
import { TraceText } from "./text.js";
import { foldButtons, TraceViewer } from "./viewer.js";

/** The part of a longer trace that is shown. */
const MAX_BYTES = 256 * 1024 * 1024;
/** Milliseconds without typing before a search starts. */
const TYPING = 200;

export const styles = () => sheet("trace");

/**
 * Returns `element`, `read(build)`, to call when the build is known and after each change of it, and `goTo(hash)`. `about` is
 * `{path, id}`.
 */
export function output(page, about) {
  let text = new TraceText();
  let stream = null;
  let [attempt, isOver, total, end] = [null, false, 0, 0];

  const wrong = h("p.wrong", { role: "alert", hidden: true });
  const note = h("p.output-note");
  const toEnd = h("button.to-end", { type: "button", hidden: true, onclick: () => viewer.toEnd() });
  const folds = h("span.fold-all");
  const viewer = new TraceViewer(text, () => {
    toEnd.hidden = viewer.atEnd;
    toEnd.textContent = isOver ? "To the end" : "Follow the end";
  });
  const find = searchBar(page, () => text, viewer);
  const frame = h("div.output-frame", null, viewer.box, toEnd);
  const element = h("div.trace-view", { hidden: true },
    h("div.trace-bar", null, find.element, folds,
      h("button.quiet-button", { type: "button", onclick: () => viewer.toStart() }, "To the start"),
      doing("button", "Download", wrong, () => save(page, `${base}/api/v3/projects/${encodeURIComponent(about.path)}/builds/${about.id}/trace`, `${about.id}.log`))),
    wrong, frame);

  function show() {
    element.hidden = !total && !end;
    foldButtons(folds, viewer, text);
    const lines = `${text.lineCount.toLocaleString("en")} ${text.lineCount === 1 ? "line" : "lines"}`;
    if (!total && !end) note.textContent = isOver ? "There is no output, or it was erased." : "There is no output yet.";
    else if (end >= MAX_BYTES && total > end) note.textContent = `${lines}, the first ${size(end)} of ${size(total)}. Download it to see the rest.`;
    else if (total - end > 0 && isOver) note.textContent = `Reading: ${size(end)} of ${size(total)}.`;
    else note.textContent = `${lines}, ${size(end)}.`;
    viewer.refresh();
  }

  function begin() {
    stream?.abort();
    stream = new AbortController();
    text = new TraceText();
    end = 0;
    viewer.replaceText(text);
    find.renew();
    const mine = stream;
    // A tab that is hidden closes the stream, also before everything was read.
    const over = () => isOver && end >= total;
    page.follow("Printed", { ...about, afterSeq: "0" }, {
      over,
      until: mine.signal,
      gap: () => {},
      event({ buildTrace: { text: piece, startBytes, endBytes } }) {
        if (mine.signal.aborted) return;
        // The build started again, or its output was replaced.
        if (Number(startBytes) !== end) return begin();
        text.append(piece);
        end = Number(endBytes);
        if (end >= MAX_BYTES) mine.abort();
        show();
      },
    });
  }

  return {
    element: [element, note],
    read(build) {
      total = Number(build.trace?.totalBytes ?? 0);
      const before = attempt;
      attempt = `${build.attempt} ${build.erasedAt}`;
      const wasOver = isOver;
      isOver = !["RUNNING", "PENDING"].includes(build.status);
      if (attempt !== before || (wasOver && !isOver)) begin();
      show();
    },
    goTo: (hash) => viewer.goTo(hash),
  };
}

/** A field that searches, with its matches: Enter and Shift+Enter go to the next and the one before. */
function searchBar(page, getText, viewer) {
  let [found, at, work, timer, pattern] = [[], -1, new AbortController(), 0, null];
  const count = h("span.quiet.match-count", { role: "status" });
  const field = h("input", { type: "search", "data-filter": true, placeholder: "Search the output", "aria-label": "Search the output", autocomplete: "off", spellcheck: "false", maxlength: 200, oninput: later, onkeydown: press });
  const step = (by) => {
    if (!found.length) return;
    at = (at + by + found.length) % found.length;
    viewer.mark(pattern, found[at]);
    viewer.showLine(found[at]);
    count.textContent = labelOf(found.length, at);
  };
  const previous = h("button.quiet-button", { type: "button", "aria-label": "Previous match", title: "Previous match (Shift+Enter)", hidden: true, onclick: () => step(-1) }, "↑");
  const next = h("button.quiet-button", { type: "button", "aria-label": "Next match", title: "Next match (Enter)", hidden: true, onclick: () => step(1) }, "↓");
  const element = h("div.trace-search", { role: "search" }, field, count, previous, next);

  function later() {
    clearTimeout(timer);
    timer = setTimeout(run, TYPING);
  }

  async function run() {
    clearTimeout(timer);
    timer = 0;
    work.abort();
    work = new AbortController();
    const { signal } = work;
    [found, at, pattern] = [[], -1, patternOf(field.value)];
    previous.hidden = next.hidden = true;
    count.textContent = "";
    viewer.mark(pattern);
    if (!pattern) return;
    const progress = (some) => {
      if (signal.aborted) return;
      found = some;
      previous.hidden = next.hidden = !found.length;
      if (at < 0 && found.length) step(1);
      else if (found.length) count.textContent = labelOf(found.length, at);
    };
    progress(await search(getText(), pattern, AbortSignal.any([signal, page.signal]), progress));
    if (!signal.aborted && !found.length) count.textContent = labelOf(0, 0);
  }

  function press(event) {
    if (event.key !== "Enter") return;
    event.preventDefault();
    if (timer) run();
    else step(event.shiftKey ? -1 : 1);
  }

  return {
    element,
    /** Searches again, in another trace. */
    renew: () => field.value && later(),
  };
}
