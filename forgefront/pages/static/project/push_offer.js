// The offer to propose a branch that the viewer has just pushed.

import { address } from "../address.js";
import { h, replace } from "../dom.js";
import * as graph from "../graph.js";
import { ago, icon } from "../parts.js";

/** Milliseconds after a push during which a merge request is offered. */
const RECENT = 2 * 3_600_000;

/** An element that shows the offer if there is one, when it is known. */
export function pushOffer(page, path) {
  const slot = h("div", { hidden: true });
  find(page, path).then((found) => {
    if (!found) return;
    const { name, createdAt, commits } = found;
    const query = new URLSearchParams({ source: name, ...(commits.length === 1 && { title: commits[0].message.split("\n", 1)[0] }) });
    replace(slot, h("section.standing.push-offer", { "aria-label": "Your last push" },
      h("p", null, "You pushed ", h("span.ref", null, icon("branch"), name), ago(createdAt),
        h("a.button.primary", { href: `${address(path, "merge_requests", "new")}?${query}` }, "New merge request"))));
    slot.hidden = false;
  }, () => {});
  return slot;
}

/** The newest recent push of the viewer to a branch that is ahead of the default branch, and that no open merge request proposes. */
async function find(page, path) {
  const request = async (operation, variables) => (await graph.request("push_offer", operation, { path, ...variables }, { signal: page.signal })).project;
  const { defaultBranch, viewerCan, activities } = await request("Pushes");
  if (!viewerCan.createMergeRequest) return null;
  const names = new Set([defaultBranch]);
  for (const { author, createdAt, push } of activities.nodes) {
    const name = /^refs\/heads\/(.*)$/s.exec(push?.ref ?? "")?.[1];
    if (!name || names.has(name) || author.username !== page.viewer.username || Date.now() - new Date(createdAt) > RECENT) continue;
    names.add(name);
    if (/^0+$/.test(push.after)) continue;
    const { branch, mergeRequests } = await request("PushedBranch", { name });
    if (branch && branch.aheadBy !== 0 && mergeRequests.totalCount === 0) return { name, createdAt, commits: push.commits };
  }
  return null;
}
