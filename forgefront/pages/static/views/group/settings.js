// The settings of a group: its name, path and description, and its deletion.

import { address } from "../../address.js";
import { removal } from "../../dialogs.js";
import { h } from "../../dom.js";
import { field, form } from "../../forms.js";
import { showGroup } from "../../group/head.js";
import { section } from "../../parts.js";

export async function open(page) {
  const { name: path } = page.where;
  const { group } = await page.request("GroupSettings", { path });
  if (!group) throw page.missing("group");
  if (!group.viewerCan.update) throw page.forbidden("You may not change the settings of this group.");
  showGroup(page, group, "settings", h("div.settings", null,
    section("General", null, settings(page, group)),
    group.viewerCan.delete ? section("Delete the group", null, deleting(page, group)) : null));
}

const settings = (page, { name, path, description }) =>
  form("Settings of the group", [
    field("name", "Name", { required: true, maxlength: 255, value: name, autocomplete: "off" }),
    field("newPath", "Path", { required: true, value: path, autocomplete: "off", hint: "The first part of the addresses of its projects. The old addresses stop working." }),
    field("description", "Description", { kind: "textarea", maxlength: 255, value: description, autocapitalize: "sentences", spellcheck: "true" }),
  ], {
    word: "Save the settings", keep: page, fieldOf: { path: "newPath" },
    async act(values) {
      const before = { name, newPath: path, description };
      // Only what is changed is sent: a value of somebody else's change stays.
      const changed = Object.entries(values).filter(([key, value]) => value !== before[key]);
      const { group } = await page.mutate("UpdateGroup", { path, ...Object.fromEntries(changed) });
      page.announce("The settings are saved.");
      page.go(address("groups", group.path, "settings"), { replace: true });
    },
  });

const deleting = (page, { name, path, projects: { totalCount } }) => [
  h("p.hint", null, totalCount ? `Its projects, of which you see ${totalCount}, are deleted with their repositories. They cannot be restored.` : "It has no projects that you see."),
  h("div.actions.start", null, removal(page, {
    word: "Delete", label: "Delete the group", title: `Delete ${name}?`, text: "All its projects are deleted, and cannot be restored.", typed: path,
    async act() {
      await page.mutate("DeleteGroup", { path });
      page.announce("The group is deleted.");
      page.go(address(""));
    },
  }))];
