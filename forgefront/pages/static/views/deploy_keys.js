// The deploy keys of a project: SSH keys that fetch from it.

import { removal } from "../dialogs.js";
import { h } from "../dom.js";
import { field, form } from "../forms.js";
import { ago, more, section } from "../parts.js";
import { entries, entry, showSection } from "../settings.js";

export async function open(page) {
  const { path } = page.where;
  const read = async (after = null) => {
    const { project } = await page.ask("DeployKeys", { path, after });
    if (!project) throw page.missing("project");
    return project;
  };
  const project = await read();
  const renew = async () => {
    const next = (await read()).deployKeys;
    list.renew(next.nodes);
    further.replaceWith((further = paging(next.pageInfo)));
  };
  const list = entries("Deploy keys", project.deployKeys.nodes, (key) => keyEntry(page, key, renew), "No deploy key yet.");
  const paging = (pageInfo) => more(pageInfo, async (after) => {
    const next = (await read(after)).deployKeys;
    list.add(next.nodes);
    return next.pageInfo;
  });
  let further = paging(project.deployKeys.pageInfo);

  const adding = form("Add a deploy key", [
    field("title", "Title", { required: true }),
    field("key", "Public key", { kind: "textarea", required: true, hint: "In one line, such as ssh-ed25519 AAAA… comment." }),
  ], {
    word: "Add the key",
    async act(values) {
      const { deployKey } = await page.change("AddDeployKey", { path, ...values });
      adding.reset();
      await renew();
      page.say(`The key ${deployKey.title} is added.`);
    },
  });
  showSection(page, project, "deploy_keys", [
    section("Deploy keys", null, h("p.hint", null, "They fetch from this project over SSH, and cannot push."), list.element, further),
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
        await page.change("RemoveDeployKey", { id });
        await renew();
        page.say(`The key ${title} is removed.`);
      },
    }));
