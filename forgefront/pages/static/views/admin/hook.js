// A system hook: its settings, a test, and its deliveries.

import { adminAddress, requireAdmin, showAdmin } from "../../admin/page.js";
import { section } from "../../parts.js";
import { hookForm } from "../../settings/hook_form.js";
import { hookSections } from "../../settings/hook_sections.js";

export async function open(page) {
  requireAdmin(page);
  const id = Number(page.where.number);
  const all = adminAddress("hooks");
  const { hook, sections } = await hookSections(page, {
    read: async () => (await page.request("SystemHook", { id })).hook,
    readDeliveries: async (after) => (await page.request("SystemDeliveries", { id, after })).hook.deliveries,
    test: () => page.mutate("TestSystemHook", { id }),
    async remove() {
      await page.mutate("RemoveSystemHook", { id });
      page.go(all);
    },
  });
  showAdmin(page, "hooks", [
    sections,
    section("Change", null, hookForm("Change the hook", hook, {
      word: "Save", takesToken: false, keep: page,
      async act({ verify, ...values }) {
        await page.mutate("UpdateSystemHook", { input: { databaseId: id, ...values, enableSslVerification: verify } });
        page.announce("The hook is changed.");
        page.reload();
      },
    })),
  ], { heading: `System hook #${id}`, above: [["System hooks", all]] });
}
