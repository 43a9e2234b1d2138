// The system hooks, which receive events of the whole instance, and the form that adds one.

import { adminAddress, requireAdmin, showAdmin } from "../../admin/page.js";
import { h } from "../../dom.js";
import { section } from "../../parts.js";
import { connectionList } from "../../project/lists.js";
import { hookForm } from "../../settings/hook_form.js";
import { hookEntry } from "../../settings/hook_sections.js";

export async function open(page) {
  requireAdmin(page);
  const { element } = await connectionList({
    read: (after) => page.request("SystemHooks", { after }),
    connection: "hooks", name: "System hooks", none: "No system hook yet.", item: (hook) => hookEntry(adminAddress("hooks", hook.databaseId), hook),
  });
  showAdmin(page, "hooks", [
    section("System hooks", null, h("p.hint", null, "They receive events of all projects, users and groups: what was created, renamed and deleted, and the events that you choose."), element),
    section("Add a system hook", null, hookForm("Add a system hook", null, {
      word: "Add the hook", takesToken: false, keep: page,
      async act({ verify, ...values }) {
        const { hook } = await page.mutate("CreateSystemHook", { input: { ...values, enableSslVerification: verify } });
        page.announce("The hook is added.");
        page.go(adminAddress("hooks", hook.databaseId));
      },
    })),
  ]);
}
