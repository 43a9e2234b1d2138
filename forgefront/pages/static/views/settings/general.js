// The general settings of a project: what it is called, who sees it, what it has, and whether it is archived.

import { removal } from "../../dialogs.js";
import { doing } from "../../discussion.js";
import { h } from "../../dom.js";
import { check, field, form } from "../../forms.js";
import { section } from "../../parts.js";
import { VISIBILITIES } from "../../project/visibilities.js";
import { showSection } from "../../settings/page.js";

const FEATURES = [
  ["issuesEnabled", "Issues"],
  ["mergeRequestsEnabled", "Merge requests"],
  ["buildsEnabled", "Builds"],
  ["snippetsEnabled", "Snippets"],
  ["sharedRunnersEnabled", "Shared runners run its builds"],
];

export async function open(page) {
  const { path } = page.where;
  const { project } = await page.ask("General", { path });
  if (!project) throw page.missing("project");
  const can = project.abilities;
  if (!can.update) throw page.forbidden("You may not change the settings of this project.");
  showSection(page, project, "general", [
    section("General", null, settings(page, project, can)),
    can.archive ? section(project.archived ? "Archived" : "Archive the project", null, archiving(page, path, project)) : null,
  ]);
}

const settings = (page, project, can) =>
  form("General settings", [
    can.rename ? field("name", "Name", { required: true, value: project.name }) : null,
    field("description", "Description", { kind: "textarea", value: project.description ?? "" }),
    can.changeVisibility ? field("visibility", "Visibility", { kind: "select", options: VISIBILITIES, value: project.visibility }) : null,
    can.rename ? null : h("p.hint", null, "Owners change the name and the visibility, and archive the project."),
    project.defaultBranch ? field("defaultBranch", "Default branch", { required: true, value: project.defaultBranch }) : null,
    h("fieldset", null, h("legend", null, "Features"), FEATURES.map(([name, word]) => check(name, word, project[name]))),
  ], {
    word: "Save the settings",
    async act(values) {
      // Only what is changed is sent: a value of somebody else's change stays.
      const changed = Object.entries(values).filter(([name, value]) => value !== (project[name] ?? ""));
      await page.change("ChangeProject", { path: page.where.path, ...Object.fromEntries(changed) });
      page.say("The settings are saved.");
      page.go(location.pathname, { replace: true });
    },
  });

function archiving(page, path, { archived, name }) {
  const wrong = h("p.wrong", { role: "alert", hidden: true });
  if (archived) {
    return [h("p.hint", null, "It is read-only and not among the projects of the first page."),
      h("div.actions.start", null, doing("button", "Unarchive", wrong, async () => {
        await page.change("Unarchive", { path });
        page.say("The project is unarchived.");
        page.go(location.pathname, { replace: true });
      })), wrong];
  }
  return [h("p.hint", null, "An archived project is read-only: nobody pushes, and no builds run."),
    h("div.actions.start", null, removal(page, {
      word: "Archive", label: "Archive the project", title: `Archive ${name}?`, text: "Nobody can push until it is unarchived.",
      async act() {
        await page.change("Archive", { path });
        page.say("The project is archived.");
        page.go(location.pathname, { replace: true });
      },
    }))];
}
