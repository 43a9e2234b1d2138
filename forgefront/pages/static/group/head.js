// The head of the pages of a group: its name and the tabs.

import { address } from "../address.js";
import { h } from "../dom.js";

const PARTS = [[undefined, "Projects"], ["dashboard", "Dashboard"], ["builds", "Builds"], ["merge_requests", "Merge requests"], ["issues", "Issues"], ["members", "Members"], ["settings", "Settings"]];

/** Shows a part of a group. `group` has its name, path, description and `viewerCan.update`; `aside` stands beside the name. */
export function showGroup(page, group, part, content, aside = null) {
  const [, word] = PARTS.find(([name]) => name === part);
  page.title(part ? `${word} · ${group.name}` : group.name, [[group.name, address("groups", group.path)]]);
  page.show(h("header.page-head", null, h("h1", null, group.name), aside), group.description ? h("p.quiet", null, group.description) : null, groupTabs(group, part), content);
}

/** The parts of the group; `current` is undefined for its projects. */
export const groupTabs = ({ path, viewerCan }, current) =>
  h("nav.tabs", { "aria-label": "Parts of the group" },
    PARTS.filter(([name]) => name !== "settings" || viewerCan.update).map(([name, word]) => h("a", { href: address("groups", path, ...(name ? [name] : [])), "aria-current": name === current ? "page" : null }, word)));
