// What the pages of the administration share: the heading, the sections, and that others do not find them.

import { address } from "../address.js";
import { h } from "../dom.js";

const SECTIONS = [["status", "Status"], ["users", "Users"], ["runners", "Runners"], ["hooks", "System hooks"], ["settings", "Settings"]];

/** The address of a part of the administration; "status" is the first page. */
export const adminAddress = (section = "status", ...more) => address("-", "admin", ...(section === "status" ? [] : [section]), ...more);

/** Throws the error of a page that does not exist, for everybody but administrators. */
export function requireAdmin(page) {
  if (!page.viewer.isAdmin) throw page.missing("page");
}

/** Shows a section. `heading` is that of an object in it, `above` the breadcrumbs between the administration and the page. */
export function showAdmin(page, name, content, { heading = null, above = [] } = {}) {
  const [, word] = SECTIONS.find(([each]) => each === name);
  page.title(`${heading ?? word} · Administration`, [["Administration", adminAddress()], ...above]);
  page.show(
    h("header.head", null, h("h1", null, heading ?? "Administration")),
    h("nav.tabs", { "aria-label": "Sections of the administration" },
      SECTIONS.map(([each, text]) => h("a", { href: adminAddress(each), "aria-current": each === name ? "page" : null }, text))),
    h("div.settings", null, content));
}
