// What the pages of a project's settings share: the heading and the sections.

import { address } from "../address.js";
import { h } from "../dom.js";
import { projectCrumbs } from "../project/crumbs.js";
import { SECTIONS, hasSettings } from "./sections.js";

/** Shows a section. `heading` is that of an object in it, `above` the breadcrumbs between the project and the page. */
export function showSection(page, project, name, content, { heading = null, above = [] } = {}) {
  const { namespace, fullPath: path } = project;
  const shown = SECTIONS.filter(([, , there]) => there(project.viewerCan));
  const [, word] = SECTIONS.find(([each]) => each === name);
  page.title(`${heading ?? word} · ${namespace.name} / ${project.name}`, projectCrumbs(project, ...above));
  page.show(
    h("header.head", null, h("h1", null, heading ?? (hasSettings(project) ? "Settings" : word))),
    h("nav.tabs", { "aria-label": "Settings of the project" },
      shown.map(([each, text]) => h("a", { href: address(path, "settings", each), "aria-current": each === name ? "page" : null }, text))),
    h("div.settings", null, content));
}
