// The deploy keys of a project: SSH keys that fetch from it.

import { removal } from "../../dialogs.js";
import { h } from "../../dom.js";
import { field, form } from "../../forms.js";
import { ago, section } from "../../parts.js";
import { entry, listOf } from "../../project/lists.js";
import { showSection } from "../../settings/page.js";

export async function open(page) {
  const { path } = page.where;
  const { project, element, renew } = await listOf(page, {
    operation: "DeployKeys", connection: "deployKeys", name: "Deploy keys", none: "No deploy key yet.",
    item: (key) => keyEntry(page, key, () => renew()),
  });
  const adding = form("Add a deploy key", [
    field("title", "Title", { required: true }),
    field("key", "Public key", { kind: "textarea", required: true, hint: "In one line, such as ssh-ed25519 AAAA… comment." }),
  ], {
    word: "Add the key", keep: page,
    async act(values) {
      const { deployKey } = await page.mutate("AddDeployKey", { path, ...values });
      adding.reset();
      await renew();
      page.announce(`The key ${deployKey.title} is added.`);
    },
  });
  showSection(page, project, "deploy_keys", [
    section("Deploy keys", null, h("p.hint", null, "They fetch from this project over SSH, and cannot push."), element),
    section("Add a deploy key", null, adding),
  ]);
}

const keyEntry = (page, { id, title, key, fingerprint, createdAt }, renew) =>
  entry(
    h("details", null, h("summary", { "data-item": true }, title), h("pre.output", { tabindex: 0, role: "region", "aria-label": `Public key ${title}` }, key)),
    [h("code", null, fingerprint), h("span", null, "added ", ago(createdAt))],
    removal(page, {
      label: `Remove the key ${title}`, title: `Remove the key ${title}?`, text: "It can no longer fetch from this project.",
      async act() {
        await page.mutate("RemoveDeployKey", { id });
        await renew();
        page.announce(`The key ${title} is removed.`);
      },
    }));
