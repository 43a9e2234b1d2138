// The hooks of a project, and the form that adds one.

import { address } from "../../address.js";
import { section } from "../../parts.js";
import { listOf } from "../../project/lists.js";
import { hookForm } from "../../settings/hook_form.js";
import { hookEntry } from "../../settings/hook_sections.js";
import { showSection } from "../../settings/page.js";

export async function open(page) {
  const { path } = page.where;
  const { project, element } = await listOf(page, {
    operation: "Hooks", connection: "hooks", name: "Hooks", none: "No hook yet.", item: (hook) => hookEntry(address(path, "settings", "hooks", hook.databaseId), hook),
  });
  showSection(page, project, "hooks", [
    section("Hooks", null, element),
    section("Add a hook", null, hookForm("Add a hook", null, {
      word: "Add the hook", keep: page,
      async act(variables) {
        const { hook } = await page.mutate("AddHook", { path, ...variables });
        page.announce("The hook is added.");
        page.go(address(path, "settings", "hooks", hook.databaseId));
      },
    })),
  ]);
}
