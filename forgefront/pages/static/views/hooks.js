// The hooks of a project, and the form that adds one.

import { address } from "../address.js";
import { h } from "../dom.js";
import { EVENTS, hookForm } from "../hook_form.js";
import { ago, more, section, symbol } from "../parts.js";
import { entries, entry, showSection } from "../settings.js";

export async function open(page) {
  const { path } = page.where;
  const read = async (after = null) => {
    const { project } = await page.ask("Hooks", { path, after });
    if (!project) throw page.missing("project");
    return project;
  };
  const project = await read();
  const list = entries("Hooks", project.hooks.nodes, (hook) => hookEntry(path, hook), "No hook yet.");
  showSection(page, project, "hooks", [
    section("Hooks", null, list.element, more(project.hooks.pageInfo, async (after) => {
      const next = (await read(after)).hooks;
      list.add(next.nodes);
      return next.pageInfo;
    })),
    section("Add a hook", null, hookForm("Add a hook", null, {
      word: "Add the hook",
      async act(variables) {
        const { hook } = await page.change("AddHook", { path, ...variables });
        page.say("The hook is added.");
        page.go(address(path, "settings", "hooks", hook.databaseId));
      },
    })),
  ]);
}

const hookEntry = (path, hook) =>
  entry(
    [state(hook), h("a", { href: address(path, "settings", "hooks", hook.databaseId), "data-item": true }, hook.url)],
    [EVENTS.filter(([name]) => hook[name]).map(([, word]) => h("span.tag", null, word)), since(hook)], null);

const state = ({ disabledAt, failingSince, lastSuccessAt }) =>
  disabledAt ? symbol("CANCELED", "disabled") : failingSince ? symbol("FAILED", "failing") : lastSuccessAt ? symbol("SUCCESS", "works") : symbol("NONE", "no success yet");

/** In words, what the symbol shows, and since when. */
export const since = ({ disabledAt, failingSince, lastSuccessAt }) =>
  disabledAt ? h("span", null, "disabled ", ago(disabledAt))
    : failingSince ? h("span", null, "first failure ", ago(failingSince))
      : lastSuccessAt ? h("span", null, "last success ", ago(lastSuccessAt)) : h("span", null, "no success yet");
