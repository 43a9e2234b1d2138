// The form of a new group.

import { address } from "../../address.js";
import { h } from "../../dom.js";
import { field, form } from "../../forms.js";

export async function open(page) {
  if (!page.viewer.canCreateGroup) throw page.forbidden("You may not create groups.");
  page.title("New group");
  page.show(h("header.head", null, h("h1", null, "New group")), h("div.settings", null, form("New group", [
    field("name", "Name", { required: true, maxlength: 255, autocomplete: "off" }),
    field("path", "Path", { required: true, maxlength: 255, autocomplete: "off", hint: "The first part of the addresses of its projects." }),
    field("description", "Description", { kind: "textarea", maxlength: 255, autocapitalize: "sentences", spellcheck: "true" }),
  ], {
    word: "Create the group", keep: page,
    async act(values) {
      const { group } = await page.mutate("CreateGroup", { ...values, description: values.description || null });
      page.announce("The group is created.");
      page.go(address("groups", group.path));
    },
  })));
}
