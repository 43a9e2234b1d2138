// The merge box of a merge request: each thing that a merge waits for, whether it is there, and the buttons that merge.

import { address } from "../address.js";
import { doing } from "../discussion.js";
import { h } from "../dom.js";
import { ago, badge, person, symbol } from "../parts.js";

/** What a merge waits for: the blocker, its state while it blocks, the words while it blocks, and those when it does not. */
const CHECKS = [
  ["NO_COMMITS", "FAILED", ({ targetBranch }) => `It has no commits that ${targetBranch} does not have.`, () => null],
  ["WORK_IN_PROGRESS", "PENDING", () => "It is marked as work in progress (WIP) in its title.", () => "It is not marked as work in progress."],
  ["CONFLICT", "FAILED", ({ targetBranch }) => `It conflicts with ${targetBranch}: merge ${targetBranch} into the branch, or rebase it.`,
    ({ targetBranch, mergeStatus }) => (mergeStatus === "UNCHECKED" ? null : `It has no conflicts with ${targetBranch}.`)],
  ["BUILD_RUNNING", "RUNNING", () => "Builds of its newest commit are still running.", () => null],
  ["BUILD_FAILED", "FAILED", () => "Builds of its newest commit failed.", ({ headCommit }) => (headCommit?.rollup?.state === "SUCCESS" ? "Builds of its newest commit passed." : null)],
  ["NO_PERMISSION", "FAILED", ({ targetBranch }) => `You do not have permission to merge into ${targetBranch}.`, ({ targetBranch }) => `You may merge into ${targetBranch}.`],
];
const WORDS = { FAILED: "blocks", PENDING: "waits", RUNNING: "waits", SUCCESS: "done" };

/** `act(operation, variables)` runs a mutation and reads the merge request again. `chosen.remove` is whether the box is ticked, for the next time. */
export function mergeBox(request, act, chosen) {
  const { state, blockers, headCommit, viewerCan: can, project: { fullPath: path } } = request;
  const wrong = h("p.wrong", { role: "alert", hidden: true });
  if (state === "MERGED")
    return h("div.merge-status", { "data-state": "MERGED" }, badge("MERGED"),
      h("p", null, request.mergedBy ? ["by ", person(request.mergedBy), " "] : null, request.mergedAt ? ago(request.mergedAt) : null,
        request.mergeCommit ? [" as ", h("a", { href: address(path, "commit", request.mergeCommit.oid) }, h("code", null, request.mergeCommit.shortOid))] : null));
  if (state === "CLOSED")
    return h("div.merge-status", { "data-state": "CLOSED" }, badge("CLOSED"), h("p", null, request.closedAt ? ago(request.closedAt) : null), wrong,
      can.update ? h("div.actions", null, doing("button", "Reopen", wrong, () => act("Change", { event: "REOPEN" }))) : null);

  const only = (word) => blockers.length === 1 && blockers[0] === word;
  const remove = h("input", { type: "checkbox", id: "remove", checked: chosen.remove, onchange: () => (chosen.remove = remove.checked) });
  const accept = (whenBuilt) => () => act("Accept", { sha: headCommit.oid, whenBuilt, remove: remove.checked });
  const buttons = [];
  if (can.merge && headCommit) {
    if (!blockers.length) buttons.push(doing("button.primary", "Merge", wrong, accept(false)));
    else if (only("BUILD_RUNNING") && !request.mergeWhenBuildSucceeds) buttons.push(doing("button.primary", "Merge when the builds pass", wrong, accept(true)));
    else if (only("BUILD_FAILED")) buttons.push(doing("button", "Merge despite failed builds", wrong, accept(false)));
  }
  const merging = buttons.length > 0;
  if (can.cancelMerge) buttons.push(doing("button", "Cancel automatic merge", wrong, () => act("CancelAutomatic")));
  if (can.update) buttons.push(doing("button", "Close", wrong, () => act("Change", { event: "CLOSE" })));
  const removable = merging && request.sourceBranch !== request.sourceProject?.defaultBranch;
  return h("div.merge-status", { "data-state": blockers.length ? (only("BUILD_RUNNING") ? "RUNNING" : "FAILED") : "SUCCESS" },
    h("p", null, h("strong", null, headline(request))),
    h("ul.blockers", { "aria-label": "What the merge waits for" }, checks(request).map(([word, text]) =>
      h("li", { "data-state": word }, symbol(word, WORDS[word]), h("span", null, text)))),
    wrong,
    removable ? h("label.check", { for: "remove" }, remove, `Delete ${request.sourceBranch} after the merge`) : null,
    buttons.length ? h("div.actions", null, buttons) : null);
}

function headline({ mergeWhenBuildSucceeds, blockers }) {
  if (mergeWhenBuildSucceeds) return "It will be merged automatically when its builds pass.";
  return blockers.length ? `It waits for ${blockers.length === 1 ? "one thing" : `${blockers.length} things`}.` : "It can be merged.";
}

/** `[state, words]` of each check that is known, those that block first. */
function checks(request) {
  const found = CHECKS.map(([blocker, state, blocked, done]) => {
    if (request.blockers.includes(blocker)) return [state, blocked(request)];
    const words = done(request);
    return words ? ["SUCCESS", words] : null;
  }).filter(Boolean);
  return [...found.filter(([state]) => state !== "SUCCESS"), ...found.filter(([state]) => state === "SUCCESS")];
}
