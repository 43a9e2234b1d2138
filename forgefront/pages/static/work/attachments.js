// Files attached to texts in Markdown: chosen, pasted or dropped, uploaded to the project, and linked where the cursor is.

import { base } from "../address.js";
import { h } from "../dom.js";
import { showError } from "../errors.js";
import * as session from "../session.js";

/**
 * A button that attaches files to the text in `field`, which takes pasted and dropped files then, too; null on a page without a project.
 * `wrong` shows why a file was refused. A file is sent as v3 has it, because an operation cannot contain one.
 */
export function attaching(page, field, wrong) {
  const { path } = page.where;
  if (!path) return null;
  const input = h("input", { type: "file", multiple: true, hidden: true, onchange: () => {
    attach([...input.files]);
    input.value = "";
  } });
  const button = h("button.quiet-button", { type: "button", onclick: () => input.click() }, "Attach files");
  const taken = (name) => (event) => {
    const files = [...(event[name]?.files ?? [])];
    if (!files.length) return;
    event.preventDefault();
    attach(files);
  };
  field.addEventListener("paste", taken("clipboardData"));
  field.addEventListener("drop", taken("dataTransfer"));

  async function attach(files) {
    wrong.hidden = true;
    button.ariaBusy = "true";
    try {
      for (const file of files) insert(field, await upload(page, path, file));
      page.announce(files.length === 1 ? "The file is attached." : "The files are attached.");
    } catch (error) {
      showError(wrong, error);
    } finally {
      button.ariaBusy = "false";
    }
  }
  return [button, input];
}

/** Uploads a file, and returns the Markdown that shows or links it. */
async function upload(page, path, file) {
  const body = new FormData();
  body.set("file", file);
  let response;
  try {
    response = await fetch(`${base}/api/v3/projects/${encodeURIComponent(path)}/uploads`, { method: "POST", headers: { "PRIVATE-TOKEN": session.token() }, body, signal: page.signal, credentials: "omit" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error(`${file.name} cannot be sent. It may be too large.`);
  }
  const answer = await response.json().catch(() => null);
  if (!response.ok) throw new Error(`${file.name} is not attached: ${typeof answer?.message === "string" ? answer.message : response.status}`);
  return answer.markdown;
}

/** Puts a text where the cursor is, in words of its own, and lets the form store it. */
function insert(field, text) {
  const before = field.value.slice(0, field.selectionStart);
  field.setRangeText(`${before && !/\s$/.test(before) ? " " : ""}${text} `, field.selectionStart, field.selectionEnd, "end");
  field.dispatchEvent(new Event("input", { bubbles: true }));
}
