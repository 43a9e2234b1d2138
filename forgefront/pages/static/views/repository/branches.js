// The branches of a project: the newest commit, the state of the checks and the protection of each.

import { address } from "../../address.js";
import { removal } from "../../dialogs.js";
import { doing } from "../../discussion.js";
import { h } from "../../dom.js";
import { field, form } from "../../forms.js";
import { ago, avatar, section, symbol } from "../../parts.js";
import { showProject } from "../../project/head.js";
import { entry, listOf } from "../../project/lists.js";
import { compareAddress, folderAddress } from "../../repository/addresses.js";

export async function open(page) {
  const { path } = page.where;
  const { project, element, renew } = await listOf(page, {
    operation: "Branches", connection: "branches", name: "Branches", none: "No branches yet.",
    item: (branch, { defaultBranch }) => branchEntry(page, branch, { isDefault: branch.name === defaultBranch, defaultBranch, renew: () => renew() }),
  });
  showProject(page, project, "branches", h("div.settings", null,
    section("Branches", null, element),
    project.viewerCan.pushCode && project.defaultBranch ? section("Create a branch", null, creation(page, path, project.defaultBranch, renew)) : null));
}

function branchEntry(page, { name, protected: isProtected, developersCanPush, viewerCan, target, health, aheadBy, behindBy }, { isDefault, defaultBranch, renew }) {
  const { path } = page.where;
  const wrong = h("p.wrong", { role: "alert", hidden: true });
  return entry(
    [symbol(health.state), h("a", { href: `${address(path, "commits")}?ref=${encodeURIComponent(name)}`, "data-item": true }, name),
      isDefault ? h("span.tag", null, "default") : null,
      isDefault || aheadBy === null ? null : h("span.quiet.distance", { title: `Compared with ${defaultBranch}` }, `${aheadBy} ahead, ${behindBy} behind`),
      isProtected ? h("span.tag", null, developersCanPush ? "protected, developers push" : "protected") : null, wrong],
    target ? [h("a", { href: address(path, "commit", target.shortOid) }, target.title),
      h("span.person", null, avatar(target.author, target.authorName), h("span", null, target.author?.name ?? target.authorName)), ago(target.committedAt),
      health.since && health.state === "FAILED" ? h("span", null, "failing since ", ago(health.since)) : null] : null,
    [h("a.button", { href: folderAddress(path, "", name), "aria-label": `Files of ${name}` }, "Files"),
      isDefault ? null : h("a.button", { href: compareAddress(path, defaultBranch, name), "aria-label": `Compare ${name} with ${defaultBranch}` }, "Compare"),
      viewerCan.protect ? protection(page, { name, isProtected, developersCanPush, wrong, renew }) : null,
      viewerCan.delete && !isDefault ? removal(page, {
        word: "Delete", label: `Delete the branch ${name}`, title: `Delete the branch ${name}?`, text: "Commits that no other branch and no tag contains can be lost.",
        async act() {
          await page.mutate("DeleteBranch", { path, name });
          await renew();
          page.announce(`The branch ${name} is deleted.`);
        },
      }) : null]);
}

/** The buttons that protect a branch, let developers push to it, or remove the protection. The focus stays in the entry. */
function protection(page, { name, isProtected, developersCanPush, wrong, renew }) {
  const { path } = page.where;
  const button = (kind, word, label, operation, variables, said) => {
    const element = doing("button", word, wrong, async () => {
      await page.mutate(operation, { path, name, ...variables });
      await renew();
      document.getElementById(`protect-${name}`)?.focus();
      page.announce(said);
    });
    element.ariaLabel = label;
    element.id = `${kind}-${name}`;
    return element;
  };
  return isProtected
    ? [button("protect", "Unprotect", `Unprotect ${name}`, "Unprotect", {}, `${name} is no longer protected.`),
      developersCanPush
        ? button("push", "Let only masters push", `Let only masters push to ${name}`, "Protect", { developersCanPush: false }, `Only masters push to ${name}.`)
        : button("push", "Let developers push", `Let developers push to ${name}`, "Protect", { developersCanPush: true }, `Developers may push to ${name}.`)]
    : button("protect", "Protect", `Protect ${name}`, "Protect", { developersCanPush: false }, `${name} is protected.`);
}

function creation(page, path, branch, renew) {
  const element = form("Create a branch", [
    field("name", "Name", { required: true }),
    field("ref", "From", { required: true, value: branch, hint: "A branch, a tag or a commit." }),
  ], {
    word: "Create the branch", keep: page,
    async act({ name, ref }) {
      const made = await page.mutate("CreateBranch", { path, name: name.trim(), ref: ref.trim() });
      element.reset();
      await renew();
      page.announce(`The branch ${made.branch.name} is created.`);
    },
  });
  return element;
}
