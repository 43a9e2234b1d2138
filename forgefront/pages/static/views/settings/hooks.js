// The hooks of a project, and the form that adds one.

import { address } from "../../address.js";
import { h } from "../../dom.js";
import { EVENTS, hookForm } from "../../settings/hook_form.js";
import { ago, section, symbol } from "../../parts.js";
import { entry, listOf } from "../../project/lists.js";
import { showSection } from "../../settings/page.js";

export async function open(page) {
  const { path } = page.where;
  const { project, element } = await listOf(page, {
    operation: "Hooks", connection: "hooks", name: "Hooks", none: "No hook yet.", item: (hook) => hookEntry(path, hook),
  });
  showSection(page, project, "hooks", [
    section("Hooks", null, element),
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
