// The builds of all projects of a group, newest first, with filters that stand in the address.

import { h, replace } from "../../dom.js";
import { showGroup } from "../../group/head.js";
import { more } from "../../parts.js";
import { BUILD_LIST, buildFilters, chips, chosenOf, narrowedBy } from "../../project/build_lists.js";
import { keepFocus, watch } from "../../renewing.js";
import { buildRow, rows } from "../../rows.js";

const PAGE = 30;
const POLL = 15_000;

const row = (build) => buildRow(build.project.fullPath, { placed: true })(build);

export async function open(page) {
  const chosen = chosenOf(page, BUILD_LIST);
  const { names, variables } = narrowedBy(page, BUILD_LIST);
  const read = async (after = null) => {
    const { group } = await page.request("GroupBuilds", { path: page.where.name, status: BUILD_LIST.choices[chosen], ...variables, after });
    if (!group) throw page.missing("group");
    return group;
  };
  const body = h("div");
  const show = ({ builds }) => {
    const list = rows(builds.nodes, row, "No matching builds.");
    replace(body, list, more(builds.pageInfo, async (after) => {
      const next = (await read(after)).builds;
      list.append(...next.nodes.map(row));
      return next.pageInfo;
    }));
  };
  const group = await read();
  show(group);
  showGroup(page, group, "builds", [buildFilters(page, { commits: false }), chips(page, BUILD_LIST, chosen, names), body]);
  // A longer list is not renewed, since outdated rows are better than rows that move under the reader.
  watch(page, POLL, async () => {
    if (body.querySelectorAll(".row").length > PAGE) return;
    const next = await read();
    keepFocus(body, () => show(next));
  });
}
