// The environments of a project: what was deployed to each, by whom and when, and the buttons that stop them.

import { address, outside } from "../address.js";
import { doing } from "../discussion.js";
import { h } from "../dom.js";
import { ago, icon, person, section } from "../parts.js";
import { showProject } from "../project/head.js";
import { entry, listOf } from "../project/lists.js";
import { renewal } from "../renewing.js";

export async function open(page) {
  const { path } = page.where;
  let renew;
  const soon = renewal(page, () => renew());
  await page.follow("Changed", { path }, {
    event: ({ buildChanged: { to } }) => (to === "SUCCESS" ? soon() : null),
    gap: soon,
  });
  const list = await listOf(page, {
    operation: "Environments", connection: "environments", name: "Environments",
    none: "Nothing was deployed yet. A job of the CI file with an environment deploys.",
    item: (environment) => environmentEntry(page, environment, () => renew()),
  });
  renew = list.renew;
  showProject(page, list.project, "environments", section("Environments", null, list.element));
}

function environmentEntry(page, { databaseId: id, name, externalUrl, stoppedAt, viewerCan, lastDeployment }, renew) {
  const { path } = page.where;
  const wrong = h("p.wrong", { role: "alert", hidden: true });
  const stop = async () => {
    const { environment } = await page.mutate("Stop", { path, id });
    await renew();
    page.announce(environment.stoppedAt ? `${name} is stopped.` : `${name} is being stopped.`);
  };
  const url = externalUrl && outside(externalUrl);
  return entry(
    [url ? h("a", { href: url, rel: "noopener noreferrer", "data-item": true }, name) : h("span", null, name),
      stoppedAt ? h("span.tag", null, "stopped") : null, wrong],
    lastDeployment ? deployed(path, lastDeployment) : [h("span", null, "The last deployment was deleted.")],
    viewerCan.stop ? doing("button", "Stop", wrong, stop) : null);
}

const deployed = (path, { ref, createdAt, user, build, commit }) => [
  commit ? h("a", { href: address(path, "commit", commit.shortOid) }, commit.title) : null,
  h("span.ref", null, icon("branch"), ref),
  build ? h("a", { href: address(path, "builds", String(build.databaseId)) }, `${build.name} #${build.databaseId}`) : null,
  user ? person(user) : null,
  ago(createdAt),
];
