// The runners of a project: those that serve it, others that the viewer may assign, and the token that registers new ones.

import { removal } from "../../dialogs.js";
import { doing } from "../../discussion.js";
import { h, replace } from "../../dom.js";
import { field, form } from "../../forms.js";
import { ago, section, symbol } from "../../parts.js";
import { entry, listOf } from "../../project/lists.js";
import { showSection } from "../../settings/page.js";
import { registration, stateOf } from "../../settings/runner_parts.js";

export async function open(page) {
  const { path } = page.where;
  const assigning = h("div");
  const { project, element, renew: renewList } = await listOf(page, {
    operation: "Runners", connection: "runners", name: "Runners", none: "No runner yet.",
    item: (runner) => runnerEntry(page, runner, renew),
  });
  const available = async () => replace(assigning, assignment(page, await readAvailable(page), renew));
  async function renew() {
    await Promise.all([renewList(), available()]);
  }
  await available();

  showSection(page, project, "runners", [
    section("Runners", null,
      project.sharedRunnersEnabled ? null : h("p.hint", null, "Shared runners are switched off for this project."), element),
    section("Assign a runner", null, assigning),
    section("Register a runner", null,
      h("p.hint", null, "A program that knows this token can register itself as a runner of this project."), registration(page, {
        read: async () => (await page.request("RegistrationToken", { path })).project?.runnersToken,
        replaced: async () => (await page.mutate("ReplaceToken", { path })).runnersToken.value,
      })),
  ]);
}

function runnerEntry(page, { databaseId: id, description, active, shared, tags, runUntagged, contactedAt, viewerCan }, renew) {
  const { path } = page.where;
  const wrong = h("p.wrong", { role: "alert", hidden: true });
  const [sign, word] = stateOf({ active, contactedAt });
  const turn = active ? "Pause" : "Resume";
  const toggle = doing("button", turn, wrong, async () => {
    await page.mutate("SetActive", { id, active: !active });
    await renew();
    document.getElementById(`toggle-${id}`)?.focus();
    page.announce(`${description} is ${active ? "paused" : "active"}.`);
  });
  toggle.id = `toggle-${id}`;
  toggle.ariaLabel = `${turn} ${description}`;
  return entry(
    [symbol(sign, word), h("span", null, description), wrong],
    [h("span", null, `#${id}, ${word}`), shared ? h("span.tag", null, "shared") : null, tags.map((tag) => h("span.tag", null, tag)),
      runUntagged ? null : h("span", null, "only builds with its tags"), contactedAt ? h("span", null, "last seen ", ago(contactedAt)) : null],
    [viewerCan.update ? toggle : null,
      !shared && viewerCan.unassign ? removal(page, {
        word: "Unassign", label: `Unassign ${description}`, title: `Unassign ${description}?`, text: "It takes no further builds of this project. Builds that it is running continue.",
        async act() {
          await page.mutate("Unassign", { path, id });
          await renew();
          page.announce(`${description} no longer serves this project.`);
        },
      }) : null,
      !shared && viewerCan.delete && !viewerCan.unassign ? removal(page, {
        label: `Remove ${description}`, title: `Remove ${description}?`, text: "It serves no other project. Its token becomes invalid immediately, and builds that it runs are queued again.",
        async act() {
          await page.mutate("RemoveRunner", { id });
          await renew();
          page.announce(`${description} is removed.`);
        },
      }) : null]);
}

/** The runners of the viewer's other projects that do not serve this one. */
async function readAvailable(page) {
  const { path } = page.where;
  const found = [];
  let after = null;
  do {
    const { nodes, pageInfo } = (await page.request("AvailableRunners", { after })).availableRunners;
    found.push(...nodes.filter(({ projects }) => !projects.some(({ fullPath }) => fullPath.toLowerCase() === path.toLowerCase())));
    after = pageInfo.hasNextPage ? pageInfo.endCursor : null;
  } while (after);
  return found;
}

function assignment(page, runners, renew) {
  if (!runners.length) return h("p.quiet", null, "Your other projects have no further runner.");
  const options = runners.map(({ databaseId, description }) => [String(databaseId), `${description} (#${databaseId})`]);
  return form("Assign a runner", field("runnerId", "Runner", { kind: "select", options, hint: "The runners of other projects of which you are a master." }), {
    word: "Assign the runner",
    fieldOf: { NOT_FOUND: "runnerId", FORBIDDEN: "runnerId" },
    async act({ runnerId }) {
      const { runner } = await page.mutate("Assign", { path: page.where.path, id: Number(runnerId) });
      await renew();
      page.announce(`${runner.description} serves this project now.`);
    },
  });
}
