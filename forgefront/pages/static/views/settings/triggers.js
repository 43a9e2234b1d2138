// The triggers of builds. A token is loaded when somebody asks to see it.

import { address } from "../../address.js";
import { removal } from "../../dialogs.js";
import { doing } from "../../discussion.js";
import { h, replace } from "../../dom.js";
import { ago, section } from "../../parts.js";
import { entry, listOf } from "../../project/lists.js";
import { showSection } from "../../settings/page.js";

export async function open(page) {
  const { path } = page.where;
  const { project, element, renew } = await listOf(page, {
    operation: "Triggers", connection: "triggers", name: "Triggers", none: "No trigger yet.",
    item: (trigger) => triggerEntry(page, trigger, () => renew()),
  });
  const wrong = h("p.wrong", { role: "alert", hidden: true });

  showSection(page, project, "triggers", [
    section("Triggers", null, h("p.hint", null, "Another system starts builds with the token of a trigger. The token is its only credential."), element,
      h("div.actions.start", null, doing("button.primary", "Add a trigger", wrong, async () => {
        await page.mutate("AddTrigger", { path });
        await renew();
        page.announce("A trigger is added.");
      })), wrong),
    section("How to use one", null, h("pre.output", { tabindex: 0, role: "region", "aria-label": "Example" }, example(path, project.defaultBranch))),
  ]);
}

const example = (path, branch) =>
  `curl -F token=TOKEN -F ref=${branch ?? "master"} -F 'variables[NAME]=value' \\\n  ${location.origin}${address("api", "v3", "projects")}/${encodeURIComponent(path)}/trigger/builds`;

function triggerEntry(page, { id, createdAt, lastUsedAt }, renew) {
  const title = h("span", null, "Trigger created ", ago(createdAt));
  const wrong = h("p.wrong", { role: "alert", hidden: true });
  const token = h("code.token", { tabindex: 0, hidden: true });
  const show = doing("button", "Show the token", wrong, async () => {
    const { node } = await page.request("Token", { id });
    replace(token, node?.token ?? "The token cannot be read: this instance was restored without its key.");
    token.hidden = false;
    show.hidden = true;
    token.focus();
  });
  show.dataset.item = "";
  return entry(
    [title, token, wrong],
    h("span", null, lastUsedAt ? ["last used ", ago(lastUsedAt)] : "never used"),
    [show, removal(page, {
      label: "Remove the trigger", title: "Remove the trigger?", text: "Its token becomes invalid immediately.",
      async act() {
        await page.mutate("RemoveTrigger", { id });
        await renew();
        page.announce("The trigger is removed.");
      },
    })]);
}
