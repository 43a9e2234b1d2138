// Forms that create, change and remove a file by a commit to a branch.

import { h } from "../../dom.js";
import { field, form } from "../../forms.js";
import { GraphError } from "../../graph.js";
import { section } from "../../parts.js";
import { compareAddress, fileAddress, folderAddress, folderOf } from "../../repository/addresses.js";
import { draft, draftNotice, keepTyped } from "../../repository/drafts.js";
import { ciCheck } from "../../repository/ci_check.js";
import { pathBar, showFiles } from "../../repository/file_bar.js";
import { readFile, textOf, withLineEnds } from "../../repository/file_text.js";
import { styles } from "../../repository/styles.js";

const REGULAR = "100644";
const TOO_LARGE = 413;
const REASONS = { CONFLICT: "Somebody else has changed this file since you opened it. Nothing was committed, and your text is still here." };
const HEADINGS = { new: "New file", edit: "Edit", remove: "Remove" };

export async function open(page) {
  const { path, act, at: place = "" } = page.where;
  const ref = page.query.get("ref") || null;
  const edited = act === "edit" ? page.request("Original", { path, ref, at: place }) : null;
  const [{ project }, version] = await Promise.all([
    edited ?? page.request("Project", { path, ref }), act === "remove" ? page.request("Version", { path, ref, at: place }) : null, styles(),
  ]);
  if (!project) throw page.missing("project");
  if (!project.viewerCan.pushCode) throw page.forbidden("You may not push to this project.");
  const isFirst = act === "new" && !project.branches.nodes.length;
  if (!project.branch && !isFirst) throw page.missing("branch");
  const blob = act === "remove" ? version.project?.blob : project.blob;
  if (act !== "new" && !blob) throw page.missing("file");
  const branch = project.branch?.name ?? ref ?? project.defaultBranch ?? "main";
  const about = { project, path, place, branch, isFirst, mayPush: isFirst || project.branch.viewerCan.push, blob };
  const content = { new: () => writing(page, about, null), edit: () => editing(page, about), remove: () => removing(page, about) }[act]();
  const shown = act === "new" ? folderOf(placeOfNew(place)) : place;
  showFiles(page, project, { place: shown, ref: project.branch ? branch : null, heading: HEADINGS[act] }, h("div.file-bar", null, pathBar(project, shown, branch, { isFile: act !== "new" })),
    section(HEADINGS[act], null, content));
  content.querySelector?.("[name=path], [name=content]")?.focus({ preventScroll: true });
}

/** The path of a new file as far as the address has it: an address that ends with a slash names the directory. */
const placeOfNew = (place) => (place && location.pathname.endsWith("/") ? `${place}/` : place);

function editing(page, about) {
  const original = about.blob.isBinary ? null : textOf(about.blob.base64);
  if (!original) return h("p.wrong", null, "This file is not UTF-8 text, so that it cannot be edited here. It can be removed, and another one created.");
  return writing(page, about, original);
}

/** The form of a new file, or of a changed one. `original` is the text of the file, null for a new one. */
function writing(page, about, original) {
  const { project, path, place, branch, blob } = about;
  const stored = draft(page);
  const restored = stored.read();
  // What a person typed is based on the version that the form showed then.
  const base = { oid: blob?.oid ?? null, commitOid: blob?.commitOid ?? null, isWindows: Boolean(original?.isWindows), ...restored?.base };
  const at = original ? place : placeOfNew(place);
  const values = { path: at, content: original?.text ?? "", ...commitValues(page, about), ...restored?.values };
  const mayRename = !original || blob.mode === REGULAR;
  const conflict = h("div.draft-note", { hidden: true });
  const upload = original ? null : h("input", { type: "file", id: "field-upload", "aria-describedby": "upload-hint" });
  const defaultMessage = (name) => (original ? (name === place ? `Update ${name}` : `Rename ${place} to ${name}`) : `Add ${name}`);

  const element = form(original ? "Edit the file" : "New file", [
    restored ? draftNotice(stored, "This is what you typed before and did not commit.") : null,
    field("path", "Path", { required: true, value: values.path, readonly: !mayRename, hint: mayRename ? "From the root of the project; missing directories are created." : "A file with this mode keeps its path." }),
    field("content", "Contents", {
      kind: "textarea", value: values.content, autocomplete: "off", wrap: "off",
      hint: original?.mixed ? "The line ends of this file are mixed; they become uniform when you commit." : "Ctrl+Enter commits.",
    }),
    upload ? h("div.field", null, h("label", { for: "field-upload" }, "Or a file of this computer"), upload,
      h("p.hint", { id: "upload-hint" }, "It is committed as it is, instead of the contents above.")) : null,
    h("div.pair", null, commitFields(about, values, original ? `Update ${place}` : "Add the file")),
    conflict,
  ], { word: "Commit", fieldOf: { FORBIDDEN: "branch", name: "branch", actions: "path" }, also: h("a.button", { href: folderAddress(path, folderOf(at), project.branch ? branch : null), onclick: () => forget() }, "Cancel"), act });

  async function act(typed) {
    conflict.hidden = true;
    const [name, target] = [typed.path.trim(), typed.branch.trim()];
    const file = upload?.files[0];
    const content = file ? { content: await readFile(file), encoding: "BASE64" } : { content: withLineEnds(typed.content, base.isWindows) };
    const isMoved = original && name !== place;
    const actions = !original ? [{ action: "CREATE", path: name, ...content }]
      : isMoved ? [{ action: "CREATE", path: name, ...content }, { action: "DELETE", path: place, expectedOid: base.oid }]
        : [{ action: "UPDATE", path: place, ...content, expectedOid: base.oid }];
    try {
      await commit(page, about, target, typed.message.trim() || defaultMessage(name), actions);
    } catch (error) {
      if (error.code === "CONFLICT") await explain(target);
      throw REASONS[error.code] || error.status === TOO_LARGE ? new GraphError(error.code, REASONS[error.code] ?? "This is too large to be committed here. Push it with git.") : error;
    }
    forget();
    page.announce("The commit is made.");
    page.go(target === branch || about.isFirst ? fileAddress(path, name, target) : compareAddress(path, branch, target));
  }

  /** Shows what can be done about a version that somebody else has committed. */
  async function explain(target) {
    const { project: now } = await page.request("Version", { path, ref: target, at: place });
    conflict.replaceChildren(
      h("a.button", { href: compareAddress(path, base.commitOid, target) }, "See the other changes"),
      now?.blob ? h("button", { type: "button", onclick: () => {
        base.oid = now.blob.oid;
        element.requestSubmit();
      } }, "Overwrite with my text") : null);
    conflict.hidden = false;
  }

  const forget = keepTyped(page, element, stored, base);
  element.classList.add("file-form");
  ciCheck(page, element, { path, ref: project.branch ? branch : null });
  submitByKey(element);
  return element;
}

function removing(page, about) {
  const { path, place, branch, blob } = about;
  const element = form("Remove the file", [
    h("p", null, "The commit removes ", h("code", null, place), ". Earlier commits keep it."),
    h("div.pair", null, commitFields(about, commitValues(page, about), `Remove ${place}`)),
  ], {
    word: "Remove the file", fieldOf: { FORBIDDEN: "branch", name: "branch" }, also: h("a.button", { href: fileAddress(path, place, branch) }, "Cancel"),
    async act({ branch: target, message }) {
      await commit(page, about, target.trim(), message.trim() || `Remove ${place}`, [{ action: "DELETE", path: place, expectedOid: blob.oid }]);
      page.announce("The file is removed.");
      page.go(target.trim() === branch ? folderAddress(path, folderOf(place), branch) : compareAddress(path, branch, target.trim()));
    },
  });
  element.classList.add("file-form");
  submitByKey(element);
  return element;
}

/** A viewer who may not push to the branch is offered a name for a new one. */
const commitValues = (page, { branch, mayPush }) => ({ branch: mayPush ? branch : `${page.viewer.username}-patch`, message: "" });

const commitFields = ({ branch, isFirst, mayPush }, values, message) => [
  field("message", "Commit message", { value: values.message, placeholder: message, autocapitalize: "sentences", spellcheck: "true" }),
  field("branch", "Branch", {
    required: true, value: values.branch,
    hint: isFirst ? "The first branch of the project." : mayPush ? `Another name makes a branch from ${branch}.` : `You may not push to ${branch}: this makes a branch from it.`,
  }),
];

/** Commits to a branch, which is made from the one at which the form was opened if there is none of its name. */
async function commit(page, { path, place, branch, isFirst }, target, message, actions) {
  if (!isFirst && target !== branch) {
    const { project } = await page.request("Version", { path, ref: target, at: place });
    if (!project?.branch) await page.mutate("CreateBranch", { path, name: target, ref: branch });
  }
  await page.mutate("Commit", { path, branch: target, message, actions });
}

function submitByKey(element) {
  element.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    element.requestSubmit();
  });
}
