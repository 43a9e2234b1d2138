// Checks a CI file while somebody types it: its errors at their lines, or the jobs that would run.

import { h, replace } from "../dom.js";

const CI_FILE = ".gitlab-ci.yml";
const PAUSE = 400;
const RUN_WHEN = { MANUAL: "manual", ON_FAILURE: "on failure", ALWAYS: "always" };

/** Adds the check to a form with the fields `path` and `content`; it is hidden while the path is another. `ref` is the branch of included files. */
export function ciCheck(page, form, { path, ref }) {
  const { content, path: name } = form.elements;
  const state = h("p.ci-state", { role: "status" });
  const found = h("div");
  const element = h("section.ci-check", { "aria-label": "Check of the CI file", hidden: true }, state, found);
  content.closest(".field").append(element);
  let [timer, running, checked] = [null, null, null];

  const soon = () => {
    element.hidden = name.value.trim() !== CI_FILE;
    clearTimeout(timer);
    if (!element.hidden) timer = setTimeout(check, checked === null ? 0 : PAUSE);
  };

  async function check() {
    const text = content.value;
    if (page.signal.aborted || text === checked) return;
    // One check at a time: the next one reads what is typed by then.
    if (running) return void (await running, soon());
    if (!text.trim()) {
      checked = text;
      replace(state, "The file is empty.");
      replace(found);
      delete element.dataset.state;
      return;
    }
    running = read(text);
    await running;
    running = null;
  }

  async function read(text) {
    try {
      const { ciConfig } = await page.request("CheckCiFile", { path, content: text, ref });
      checked = text;
      if (!page.signal.aborted && content.value === text) show(ciConfig);
    } catch (error) {
      if (error.name === "AbortError") return;
      checked = text;
      replace(state, `The file cannot be checked: ${error.message}`);
      replace(found);
    }
  }

  function show({ valid, errors, stages, jobs }) {
    element.dataset.state = valid ? "SUCCESS" : "FAILED";
    replace(state, valid ? `Valid: ${jobs.length} ${jobs.length === 1 ? "job" : "jobs"}${ref ? ` for ${ref}` : ""}.` : `${errors.length} ${errors.length === 1 ? "error" : "errors"}.`);
    replace(found, valid
      ? h("dl.ci-stages", null, stages.map((stage) => [stage, jobs.filter((job) => job.stage === stage)]).filter(([, own]) => own.length).map(([stage, own]) =>
        h("div", null, h("dt", null, stage), h("dd", null, own.map((job) => h("span.ci-job", null, atLine(job.line, job.name), RUN_WHEN[job.runWhen] ? h("span.quiet", null, ` ${RUN_WHEN[job.runWhen]}`) : null,
          job.environment ? h("span.quiet", null, ` → ${job.environment}`) : null))))))
      : h("ol.ci-errors", null, errors.map(({ message, line, file }) =>
        h("li", null, file ? h("code", null, line ? `${file}:${line}` : file) : atLine(line, `Line ${line}`), " ", message))));
  }

  /** A button that marks a line in the text; the words alone, or nothing, where there is no line. */
  const atLine = (line, words) =>
    line ? h("button.quiet-button", { type: "button", title: `Line ${line}`, onclick: () => select(line) }, words) : words.startsWith("Line ") ? null : words;

  function select(line) {
    const lines = content.value.split("\n");
    const start = lines.slice(0, line - 1).reduce((sum, each) => sum + each.length + 1, 0);
    content.focus();
    content.setSelectionRange(start, start + (lines[line - 1] ?? "").length);
    content.scrollTop = content.scrollHeight * ((line - 1) / Math.max(1, lines.length)) - content.clientHeight / 3;
  }

  form.addEventListener("input", soon);
  soon();
}
