// A hook of a project: its settings, a test, and its deliveries.

import { address } from "../../address.js";
import { section } from "../../parts.js";
import { hookForm } from "../../settings/hook_form.js";
import { hookSections } from "../../settings/hook_sections.js";
import { showSection } from "../../settings/page.js";

export async function open(page) {
  const { path } = page.where;
  const about = { path, id: Number(page.where.number) };
  const all = address(path, "settings", "hooks");
  const request = async (operation, variables) => {
    const { project } = await page.request(operation, { ...about, ...variables });
    if (!project?.hook) throw page.missing("hook");
    return project;
  };
  let project = null;
  const { hook, sections } = await hookSections(page, {
    read: async () => (project = await request("Hook")).hook,
    readDeliveries: async (after) => (await request("Deliveries", { after })).hook.deliveries,
    test: () => page.mutate("TestHook", about),
    async remove() {
      await page.mutate("RemoveHook", about);
      page.go(all);
    },
  });
  showSection(page, project, "hooks", [
    sections,
    section("Change", null, hookForm("Change the hook", hook, {
      word: "Save", keep: page,
      async act(variables) {
        await page.mutate("UpdateHook", { ...about, ...variables });
        page.announce("The hook is changed.");
        page.reload();
      },
    })),
  ], { heading: `Hook #${about.id}`, above: [["Hooks", all]] });
}
