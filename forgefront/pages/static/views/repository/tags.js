// The tags of a project with their release notes, which those who may push write.

import { address } from "../../address.js";
import { removal } from "../../dialogs.js";
import { h } from "../../dom.js";
import { field, form } from "../../forms.js";
import { markdown } from "../../markdown.js";
import { ago, section } from "../../parts.js";
import { downloads } from "../../project/downloads.js";
import { showProject } from "../../project/head.js";
import { entry, listOf } from "../../project/lists.js";
import { folderAddress } from "../../repository/addresses.js";

export async function open(page) {
  const { path } = page.where;
  const { project, element, renew } = await listOf(page, {
    operation: "Tags", connection: "tags", name: "Tags", none: "No tags yet.",
    item: (tag, { viewerCan }) => tagEntry(page, tag, { may: viewerCan.pushCode, renew: () => renew() }),
  });
  showProject(page, project, "tags", h("div.settings", null,
    section("Tags", null, element),
    project.viewerCan.pushCode && project.defaultBranch ? section("Create a tag", null, creation(page, path, project.defaultBranch, renew)) : null));
}

function tagEntry(page, { name, message, target, release }, { may, renew }) {
  const { path } = page.where;
  return entry(
    [h("a", { href: `${address(path, "commits")}?ref=${encodeURIComponent(name)}`, "data-item": true }, name),
      release ? h("span.tag", null, "release") : null,
      release ? h("div.release-notes", null, markdown(release.descriptionHtml)) : null,
      may ? notesForm(page, path, name, release, renew) : null],
    [message ? h("span", null, message) : null,
      target ? h("a", { href: address(path, "commit", target.shortOid) }, target.title) : null, target ? ago(target.committedAt) : null],
    [h("a.button", { href: folderAddress(path, "", name), "aria-label": `Files of ${name}` }, "Files"), downloads(page, path, name), may ? removal(page, {
      word: "Delete", label: `Delete the tag ${name}`, title: `Delete the tag ${name}?`, text: "Its release notes are deleted too. The commit stays while a branch contains it.",
      async act() {
        await page.mutate("DeleteTag", { path, name });
        await renew();
        page.announce(`The tag ${name} is deleted.`);
      },
    }) : null]);
}

function notesForm(page, path, name, release, renew) {
  const element = form(`Release notes of ${name}`, field("description", "Release notes", { kind: "textarea", id: `notes-${name}`, value: release?.description ?? "" }), {
    word: "Save the notes", keep: page,
    async act({ description: notes }) {
      await page.mutate(release ? "ChangeNotes" : "WriteNotes", { path, name, notes });
      await renew();
      page.announce(`The release notes of ${name} are saved.`);
    },
  });
  return h("details", null, h("summary", { "aria-label": `${release ? "Edit" : "Write"} the release notes of ${name}` }, release ? "Edit the release notes" : "Write the release notes"), element);
}

function creation(page, path, branch, renew) {
  const element = form("Create a tag", [
    field("name", "Name", { required: true }),
    field("ref", "Of", { required: true, value: branch, hint: "A branch, a tag or a commit." }),
    field("message", "Message", { hint: "With a message the tag is annotated." }),
    field("releaseDescription", "Release notes", { kind: "textarea" }),
  ], {
    word: "Create the tag", keep: page,
    async act({ name, ref, message, releaseDescription: notes }) {
      const { tag } = await page.mutate("CreateTag", { path, name: name.trim(), ref: ref.trim(), message: message || null, notes: notes || null });
      element.reset();
      await renew();
      page.announce(`The tag ${tag.name} is created.`);
    },
  });
  return element;
}
