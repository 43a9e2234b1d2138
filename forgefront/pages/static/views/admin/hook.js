// A system hook: a test, and its deliveries.

import { adminAddress, requireAdmin, showAdmin } from "../../admin/page.js";
import { hookSections } from "../../settings/hook_sections.js";

export async function open(page) {
  requireAdmin(page);
  const id = Number(page.where.number);
  const all = adminAddress("hooks");
  const { sections } = await hookSections(page, {
    read: async () => (await page.ask("SystemHook", { id })).hook,
    readDeliveries: async (after) => (await page.ask("SystemDeliveries", { id, after })).hook.deliveries,
    test: () => page.change("TestSystemHook", { id }),
    async remove() {
      await page.change("RemoveSystemHook", { id });
      page.go(all);
    },
  });
  showAdmin(page, "hooks", sections, { heading: `System hook #${id}`, above: [["system hooks", all]] });
}
