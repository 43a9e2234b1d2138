// The general settings of a project: what it is called, who sees it, what it has, and whether it is archived.

import { address } from "../../address.js";
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

/** Maximum number of groups that are suggested; others can be typed. */
const MAX_GROUPS = 500;

export async function open(page) {
  const { path } = page.where;
  const { project } = await page.request("General", { path });
  if (!project) throw page.missing("project");
  const can = project.abilities;
  if (!can.update) throw page.forbidden("You may not change the settings of this project.");
  showSection(page, project, "general", [
    section("General", null, settings(page, project, can)),
    section("Protected branches", null, h("p.hint", null, "Who may push and merge is chosen for each branch."), h("p", null, h("a.button", { href: address(path, "branches") }, "Protect branches"))),
    can.update ? section("Address", null, moving(page, project)) : null,
    can.archive ? section(project.archived ? "Archived" : "Archive the project", null, archiving(page, path, project)) : null,
    can.transfer ? section("Transfer", null, await transferring(page, path)) : null,
    can.delete ? section("Delete the project", null, deleting(page, path, project)) : null,
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
    word: "Save the settings", keep: page,
    async act(values) {
      // Only what is changed is sent: a value of somebody else's change stays.
      const changed = Object.entries(values).filter(([name, value]) => value !== (project[name] ?? ""));
      await page.mutate("ChangeProject", { path: page.where.path, ...Object.fromEntries(changed) });
      page.announce("The settings are saved.");
      page.go(location.pathname, { replace: true });
    },
  });

const moving = (page, { fullPath, path }) =>
  form("Address", field("newPath", "Path", { required: true, value: path, id: "field-path", hint: "The last part of the address. The old address of pages and clones stops working." }), {
    word: "Change the path", fieldOf: { path: "newPath" },
    async act({ newPath }) {
      if (newPath.trim() === path) return;
      const { project } = await page.mutate("ChangeProject", { path: fullPath, newPath: newPath.trim() });
      page.announce("The address is changed.");
      page.go(address(project.fullPath, "settings", "general"), { replace: true });
    },
  });

/** For administrators: the groups to which the project can go. */
async function transferring(page, path) {
  const groups = [];
  let after = null;
  do {
    const { nodes, pageInfo } = (await page.request("Groups", { after })).groups;
    groups.push(...nodes);
    after = pageInfo.hasNextPage && groups.length < MAX_GROUPS ? pageInfo.endCursor : null;
  } while (after);
  return form("Transfer", [
    field("group", "Group", { required: true, list: "groups", autocomplete: "off", hint: "Members of the new group or owner get access to this project. The old address stops working." }),
    h("datalist", { id: "groups" }, groups.map(({ path: value, name }) => h("option", { value }, name))),
  ], {
    word: "Transfer the project", fieldOf: { groupPath: "group", NOT_FOUND: "group" },
    async act({ group }) {
      const { project } = await page.mutate("Transfer", { path, group: group.trim() });
      page.announce(`The project is now ${project.fullPath}.`);
      page.go(address(project.fullPath, "settings", "general"), { replace: true });
    },
  });
}

const deleting = (page, path, { name, fullPath }) => [
  h("p.hint", null, "Its repository, issues, merge requests, builds and artifacts are deleted. They cannot be restored."),
  h("div.actions.start", null, removal(page, {
    word: "Delete", label: "Delete the project", title: `Delete ${name}?`, text: "Everything in it is deleted, and cannot be restored.", typed: fullPath,
    async act() {
      await page.mutate("DeleteProject", { path });
      page.announce("The project is deleted.");
      page.go(address(""));
    },
  }))];

function archiving(page, path, { archived, name }) {
  const wrong = h("p.wrong", { role: "alert", hidden: true });
  if (archived) {
    return [h("p.hint", null, "It is read-only and not among the projects of the first page."),
      h("div.actions.start", null, doing("button", "Unarchive", wrong, async () => {
        await page.mutate("Unarchive", { path });
        page.announce("The project is unarchived.");
        page.go(location.pathname, { replace: true });
      })), wrong];
  }
  return [h("p.hint", null, "An archived project is read-only: nobody pushes, and no builds run."),
    h("div.actions.start", null, removal(page, {
      word: "Archive", label: "Archive the project", title: `Archive ${name}?`, text: "Nobody can push until it is unarchived.",
      async act() {
        await page.mutate("Archive", { path });
        page.announce("The project is archived.");
        page.go(location.pathname, { replace: true });
      },
    }))];
}
