// All runners of the instance, and the token that registers shared ones.

import { adminAddress, requireAdmin, showAdmin } from "../../admin/page.js";
import { address } from "../../address.js";
import { removal } from "../../dialogs.js";
import { doing } from "../../discussion.js";
import { h } from "../../dom.js";
import { check, field, form } from "../../forms.js";
import { ago, section, symbol } from "../../parts.js";
import { connectionList, entry } from "../../project/lists.js";
import { registration, stateOf } from "../../settings/runner_parts.js";

const SCOPES = { all: ["all", null], online: ["online", "ONLINE"], paused: ["paused", "PAUSED"], shared: ["shared", "SHARED"], specific: ["of projects", "SPECIFIC"] };

export async function open(page) {
  requireAdmin(page);
  const asked = page.query.get("scope");
  const scope = Object.hasOwn(SCOPES, asked ?? "") ? asked : "all";
  const { element, renew } = await connectionList({
    read: (after) => page.request("AllRunners", { after, scope: SCOPES[scope][1] }),
    connection: "runners", name: "Runners", none: scope === "all" ? "No runner yet." : "No such runner.", item: (runner) => runnerEntry(page, runner, () => renew()),
  });
  showAdmin(page, "runners", [
    section("Runners", null,
      h("nav.chips", { "aria-label": "Filter by kind" }, Object.entries(SCOPES).map(([name, [word]]) =>
        h("a", { href: `${adminAddress("runners")}${name === "all" ? "" : `?scope=${name}`}`, "aria-current": name === scope ? "true" : null }, word))),
      element),
    section("Register a shared runner", null,
      h("p.hint", null, "A program that knows this token can register itself as a runner of all projects."), registration(page, {
        read: async () => (await page.request("SharedToken")).settings?.runnersRegistrationToken,
        replaced: async () => (await page.mutate("ReplaceSharedToken")).runnersToken.value,
      })),
  ]);
}

function runnerEntry(page, runner, renew) {
  const { databaseId: id, description, active, shared, tags, runUntagged, contactedAt, version, platform, projects } = runner;
  const wrong = h("p.wrong", { role: "alert", hidden: true });
  const [sign, word] = stateOf(runner);
  const turn = active ? "Pause" : "Resume";
  const toggle = doing("button", turn, wrong, async () => {
    await page.mutate("UpdateRunner", { input: { databaseId: id, active: !active } });
    await renew();
    document.getElementById(`toggle-${id}`)?.focus();
    page.announce(`${description} is ${active ? "paused" : "active"}.`);
  });
  toggle.id = `toggle-${id}`;
  toggle.ariaLabel = `${turn} ${description}`;
  return entry(
    [h("details", null, h("summary", { "data-item": true }, symbol(sign, word), " ", description), changing(page, runner, renew)), wrong],
    [h("span", null, `#${id}, ${word}`), shared ? h("span.tag", null, "shared") : null, tags.map((tag) => h("span.tag", null, tag)),
      runUntagged ? null : h("span", null, "only builds with its tags"),
      projects.slice(0, 3).map(({ fullPath }) => h("a", { href: address(fullPath) }, fullPath)), projects.length > 3 ? h("span", null, `and ${projects.length - 3} more`) : null,
      version || platform ? h("span", null, [version, platform].filter(Boolean).join(", ")) : null,
      contactedAt ? h("span", null, "last seen ", ago(contactedAt)) : null],
    [toggle, removal(page, {
      label: `Remove ${description}`, title: `Remove ${description}?`, text: "Its token becomes invalid immediately, and builds that it runs are queued again.",
      async act() {
        await page.mutate("DeleteRunner", { id });
        await renew();
        page.announce(`${description} is removed.`);
      },
    })]);
}

const changing = (page, { databaseId: id, description, tags, runUntagged }, renew) =>
  form(`Change ${description}`, [
    field("description", "Description", { required: true, value: description, id: `description-${id}`, autocomplete: "off" }),
    field("tags", "Tags", { value: tags.join(", "), id: `tags-${id}`, autocomplete: "off", hint: "Separated by commas." }),
    check("runUntagged", "Also runs builds without tags", runUntagged),
  ], {
    word: "Save",
    async act(values) {
      const names = values.tags.split(",").map((tag) => tag.trim()).filter(Boolean);
      await page.mutate("UpdateRunner", { input: { databaseId: id, description: values.description, tags: names, runUntagged: values.runUntagged } });
      await renew();
      page.announce("The runner is changed.");
    },
  });
