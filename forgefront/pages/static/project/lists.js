// Lists with controls: members, hooks, variables, branches, tags and others of a project.

import { h } from "../dom.js";
import { errorIn } from "../graph.js";
import { more } from "../parts.js";
import { keepFocus } from "../renewing.js";

/** The connection shown for a field that is null: without a repository there are no branches. */
const NOTHING = { nodes: [], pageInfo: { hasNextPage: false } };

/**
 * The list of a connection of the project. `operation` takes `path`, `after` and `variables`. Returns the `project`, and what
 * `connectionList` returns. `item(node, project)` makes an entry. Throws the error of a connection that the viewer may not see.
 */
export async function listOf(page, { operation, variables = {}, connection, ...more }) {
  const { holder: project, ...list } = await connectionList({
    ...more,
    connection,
    async read(after) {
      const data = await page.request(operation, { path: page.where.path, after, ...variables });
      if (!data.project) throw page.missing("project");
      const error = errorIn(data);
      if (!data.project[connection] && error?.code === "FORBIDDEN") throw error;
      return data.project;
    },
  });
  return { project, ...list };
}

/**
 * The list of a connection, a field of what `read(after)` returns. Returns this `holder`, the `element` with a button for further pages,
 * and `renew()`, which shows the first page as it is now and returns its connection. `item(node, holder)` makes an entry.
 */
export async function connectionList({ read, connection, name, none, item }) {
  const holder = await read(null);
  const list = entries(name, (holder[connection] ?? NOTHING).nodes, (node) => item(node, holder), none);
  const paging = ({ pageInfo }) => more(pageInfo, async (after) => {
    const next = (await read(after))[connection];
    list.add(next.nodes);
    return next.pageInfo;
  });
  let further = paging(holder[connection] ?? NOTHING);
  const element = h("div", null, list.element, further);
  const renew = async () => {
    const next = (await read(null))[connection] ?? NOTHING;
    list.renew(next.nodes);
    further.replaceWith((further = paging(next)));
    return next;
  };
  return { holder, element, renew };
}

/** A list with keyboard navigation, whose `renew(nodes)` shows other items and keeps the focus. */
export function entries(name, nodes, make, none) {
  const element = h("div", { role: "group", "aria-label": name, tabindex: -1 });
  const fill = (shown) => element.replaceChildren(shown.length ? h("ol.rows", { "data-walk": true }, shown.map(make)) : h("p.quiet", null, none));
  fill(nodes);
  return {
    element,
    renew(shown) {
      const focused = element.contains(document.activeElement);
      keepFocus(element, () => fill(shown));
      if (focused && !element.contains(document.activeElement)) element.focus({ preventScroll: true });
    },
    add: (further) => element.querySelector("ol").append(...further.map(make)),
  };
}

/** An item: what it is, facts about it, and its controls. */
export const entry = (title, facts, controls) =>
  h("li.entry", { "data-box": true }, h("div.entry-main", null, h("div.entry-title", null, title), h("p.row-meta", null, facts)), h("div.actions", null, controls));
