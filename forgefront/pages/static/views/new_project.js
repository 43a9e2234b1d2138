// Creates a project: an empty one, one that is imported from a URL, or a fork.

import { address } from "../address.js";
import { h } from "../dom.js";
import { field, form } from "../forms.js";
import { projectCrumbs } from "../project/crumbs.js";
import { VISIBILITIES } from "../project/visibilities.js";

export async function open(page) {
  const { path } = page.where;
  const [namespaces, source] = await Promise.all([readNamespaces(page), path ? readSource(page, path) : null]);
  const heading = source ? `Fork ${source.fullPath}` : "New project";
  page.title(heading, source ? projectCrumbs(source) : []);
  page.show(h("header.head", null, h("h1", null, heading)), h("div.settings", null, source ? forking(page, namespaces, source) : creating(page, namespaces)));
}

/** The namespaces in which the viewer may create projects, the own one first. */
async function readNamespaces(page) {
  const found = [];
  let after = null;
  do {
    const { nodes, pageInfo } = (await page.request("Namespaces", { after })).namespaces;
    found.push(...nodes);
    after = pageInfo.hasNextPage ? pageInfo.endCursor : null;
  } while (after);
  const own = ({ path }) => path === page.viewer.username;
  return found.sort((one, other) => own(other) - own(one) || one.path.localeCompare(other.path));
}

async function readSource(page, path) {
  const { project } = await page.request("Source", { path });
  if (!project) throw page.missing("project");
  if (!project.viewerCan.fork) throw page.forbidden("You may not fork this project.");
  return project;
}

const optionsOf = (namespaces) => namespaces.map(({ path, name }) => [path, path === name ? path : `${path} (${name})`]);

const creating = (page, namespaces) =>
  form("New project", [
    field("namespacePath", "Namespace", { kind: "select", options: optionsOf(namespaces), value: page.query.get("namespace") ?? page.viewer.username }),
    field("name", "Name", { required: true }),
    field("path", "Path", { hint: "The last part of its address. If it is empty, it is made from the name." }),
    field("description", "Description", { kind: "textarea" }),
    field("visibility", "Visibility", { kind: "select", options: VISIBILITIES, value: "PRIVATE" }),
    field("importUrl", "Import from", { inputmode: "url", hint: "http or https, of a git repository; with a user name and a password, if it needs them. Empty for an empty project." }),
  ], {
    word: "Create the project", keep: page,
    fieldOf: { groupPath: "namespacePath" },
    async act({ path, description, importUrl, ...values }) {
      const { project } = await page.mutate("CreateProject", { ...values, path: path.trim() || undefined, description: description || undefined, importUrl: importUrl.trim() || undefined });
      page.announce("The project is created.");
      page.go(address(project.fullPath));
    },
  });

/** A fork is in a group or in the viewer's own namespace, and no more visible than its source. */
function forking(page, namespaces, source) {
  const own = page.viewer.username;
  const allowed = VISIBILITIES.slice(0, VISIBILITIES.findIndex(([level]) => level === source.visibility) + 1);
  return form("Fork", [
    field("groupPath", "Namespace", { kind: "select", options: optionsOf(namespaces.filter(({ kind, path }) => kind === "GROUP" || path === own)), value: own }),
    field("name", "Name", { required: true, value: source.name }),
    field("path", "Path", { required: true, value: source.path }),
    field("visibility", "Visibility", { kind: "select", options: allowed, value: source.visibility, hint: "At most that of the project." }),
  ], {
    word: "Fork", keep: page,
    async act({ groupPath, name, path, visibility }) {
      const { project } = await page.mutate("Fork", { source: source.fullPath, groupPath: groupPath === own ? null : groupPath, name: name.trim(), path: path.trim(), visibility });
      page.announce("The fork is created.");
      page.go(address(project.fullPath));
    },
  });
}
