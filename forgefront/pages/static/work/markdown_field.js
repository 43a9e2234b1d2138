// A field for Markdown, with a preview as the service renders it.

import { h, replace } from "../dom.js";
import { replaceByError } from "../errors.js";
import { field } from "../forms.js";
import * as graph from "../graph.js";
import { markdown } from "../markdown.js";
import { attaching } from "./attachments.js";

/** The field, and a button that shows its preview instead of it. The properties are those of `field`. */
export function markdownField(page, path, name, word, properties) {
  const element = field(name, word, { kind: "textarea", rows: 10, autocapitalize: "sentences", spellcheck: "true", hint: "Markdown. #7, !3 and @name become links. Ctrl+Enter sends.", ...properties });
  const text = element.querySelector("textarea");
  const shown = h("div.card.preview", { hidden: true, tabindex: -1, role: "group", "aria-label": "Preview" });
  const button = h("button.quiet-button.preview-button", { type: "button", "aria-pressed": "false", onclick: turn }, "Preview");

  async function turn() {
    const opening = shown.hidden;
    button.ariaPressed = String(opening);
    button.textContent = opening ? "Write" : "Preview";
    text.hidden = opening;
    shown.hidden = !opening;
    if (!opening) {
      text.focus();
      return;
    }
    replace(shown, h("p.quiet", null, "Loading…"));
    try {
      const { project } = await graph.request("work/edit", "Preview", { path, text: text.value }, { signal: page.signal });
      replace(shown, project?.markdownHtml ? markdown(project.markdownHtml) : h("p.quiet", null, "Nothing to preview."));
    } catch (error) {
      replaceByError(shown)(error);
    }
  }

  // A refusal of the service is at the field, which must be seen then.
  text.addEventListener("focus", () => text.hidden && turn());
  const wrong = h("p.wrong", { role: "alert", hidden: true });
  element.querySelector("label").after(button, shown);
  element.append(h("div.actions.start", null, attaching(page, text, wrong)), wrong);
  return element;
}

/** Sends the form by Ctrl+Enter. */
export function submitByKey(element) {
  element.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    element.requestSubmit();
  });
}
