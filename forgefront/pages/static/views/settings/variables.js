// The secret variables of builds. Their values are never loaded: a page on a screen is seen by others.

import { removal } from "../../dialogs.js";
import { h } from "../../dom.js";
import { field, form } from "../../forms.js";
import { ago, section } from "../../parts.js";
import { entry, listOf } from "../../project/lists.js";
import { showSection } from "../../settings/page.js";

export async function open(page) {
  const { path } = page.where;
  const { project, element, renew } = await listOf(page, {
    operation: "Variables", connection: "variables", name: "Variables", none: "No variable yet.",
    item: (variable) => variableEntry(page, variable, () => renew()),
  });
  const adding = form("Add a variable", [
    field("key", "Name", { required: true, hint: "Letters, digits and _." }),
    field("value", "Value", { kind: "textarea" }),
  ], {
    word: "Add the variable",
    async act(values) {
      const { variable } = await page.mutate("AddVariable", { path, ...values });
      adding.reset();
      await renew();
      page.announce(`The variable ${variable.key} is added.`);
    },
  });
  showSection(page, project, "variables", [
    section("Variables", null, h("p.hint", null, "Builds of this project receive them; builds of forks do not. They are stored encrypted and masked in output. This page does not show values."), element),
    section("Add a variable", null, adding),
  ]);
}

function variableEntry(page, { key, updatedAt }, renew) {
  const { path } = page.where;
  const changing = form(`Change ${key}`, field("value", "New value", { kind: "textarea", id: `value-${key}` }), {
    word: "Change the value",
    async act({ value }) {
      await page.mutate("ChangeVariable", { path, key, value });
      await renew();
      page.announce(`The variable ${key} is changed.`);
    },
  });
  return entry(
    h("details", null, h("summary", { "data-item": true }, h("code", null, key)), changing),
    [h("span", null, "value hidden"), h("span", null, "changed ", ago(updatedAt))],
    removal(page, {
      label: `Remove the variable ${key}`, title: `Remove the variable ${key}?`, text: "Builds that start from now on do not receive it. Its value cannot be restored.",
      async act() {
        await page.mutate("RemoveVariable", { path, key });
        await renew();
        page.announce(`The variable ${key} is removed.`);
      },
    }));
}
