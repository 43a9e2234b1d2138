// A hook of a project: its settings, a test, and its deliveries.

import { address } from "../../address.js";
import { removal } from "../../dialogs.js";
import { doing } from "../../discussion.js";
import { h, replace } from "../../dom.js";
import { hookForm } from "../../settings/hook_form.js";
import { ago, more, section, symbol } from "../../parts.js";
import { keepFocus, watch } from "../../renewing.js";
import { showSection } from "../../settings/page.js";
import { since } from "./hooks.js";

const POLL = 3000;
const STATES = { DELIVERED: ["SUCCESS", "delivered"], FAILED: ["FAILED", "failed"], PENDING: ["PENDING", "waiting"] };

export async function open(page) {
  const { path } = page.where;
  const about = { path, id: Number(page.where.number) };
  const read = async () => {
    const { project } = await page.ask("Hook", about);
    if (!project?.hook) throw page.missing("hook");
    return project;
  };
  const [project, sent] = await Promise.all([read(), deliveries(page, about)]);
  const { hook } = project;
  const all = address(path, "settings", "hooks");
  const facts = h("p.facts", { role: "status" });
  const describe = ({ disabledReason, ...state }) => replace(facts, since(state), disabledReason ? h("span", null, disabledReason) : null);
  const wrong = h("p.wrong", { role: "alert", hidden: true });
  const renew = async () => {
    describe((await read()).hook);
    await sent.renew();
  };
  describe(hook);

  showSection(page, project, "hooks", [
    h("div.stack", null,
      h("p.address", null, h("code", null, hook.url)),
      facts,
      h("div.actions.start", null,
        doing("button", "Send a test", wrong, async () => {
          const { delivery } = await page.change("TestHook", about);
          await renew();
          page.say(`The test is ${STATES[delivery.state][1]}.`);
        }),
        removal(page, {
          label: "Remove the hook", title: "Remove the hook?", text: "Its deliveries are removed too. Nothing is sent to it any more.",
          async act() {
            await page.change("RemoveHook", about);
            page.say("The hook is removed.");
            page.go(all);
          },
        })),
      wrong),
    section("Deliveries", h("span.part-side", null, "of the last 30 days"), sent.element),
    section("Change", null, hookForm("Change the hook", hook, {
      word: "Save",
      async act(variables) {
        await page.change("UpdateHook", { ...about, ...variables });
        page.say("The hook is changed.");
        page.reload();
      },
    })),
  ], { heading: `Hook #${about.id}`, above: [["hooks", all]] });
  watch(page, POLL, () => (sent.waits() ? renew() : Promise.resolve()));
}

/** The list of deliveries. Those that did not change keep their elements, so that an open one stays open. */
async function deliveries(page, about) {
  const shown = new Map();
  let further = false;
  const read = async (after = null) => {
    const { project } = await page.ask("Deliveries", { ...about, after });
    if (!project?.hook) throw page.missing("hook");
    return project.hook.deliveries;
  };
  const elementOf = (delivery) => {
    const version = JSON.stringify(delivery);
    if (shown.get(delivery.id)?.version !== version) shown.set(delivery.id, { version, delivery, element: deliveryItem(page, delivery, renew) });
    return shown.get(delivery.id).element;
  };
  const list = h("ol.attempts", { "aria-label": "Deliveries", "data-walk": true });
  const none = h("p.quiet", null, "Nothing was sent yet.");
  const fill = (nodes) => {
    list.replaceChildren(...nodes.map(elementOf));
    none.hidden = nodes.length > 0;
  };
  async function renew() {
    const { nodes } = await read();
    const ids = new Set(nodes.map(({ id }) => id));
    keepFocus(list, () => fill(further ? [...nodes, ...[...shown.values()].map(({ delivery }) => delivery).filter(({ id }) => !ids.has(id))] : nodes));
  }
  const first = await read();
  fill(first.nodes);
  const next = more(first.pageInfo, async (after) => {
    further = true;
    const { nodes, pageInfo } = await read(after);
    list.append(...nodes.map(elementOf));
    return pageInfo;
  });
  return { element: [list, none, next], renew, waits: () => [...shown.values()].some(({ delivery }) => delivery.state === "PENDING") };
}

function deliveryItem(page, delivery, renew) {
  const { id, event, webhookId, state, attempts, nextAttemptAt, responseCode, error, createdAt } = delivery;
  const body = h("div.stack");
  const wrong = h("p.wrong", { role: "alert", hidden: true });
  let loaded = false;
  async function load({ target }) {
    if (!target.open || loaded) return;
    loaded = true;
    try {
      const { node } = await page.ask("Payload", { id });
      replace(body,
        error ? h("p", null, error) : null,
        h("dl.table", null,
          [["webhook-id", h("code", null, webhookId)], ["Attempts", attempts], ["Next attempt", nextAttemptAt ? ago(nextAttemptAt) : null]]
            .filter(([, value]) => value !== null).map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value)))),
        h("pre.output", { tabindex: 0, role: "region", "aria-label": "Request body" }, JSON.stringify(node?.payload ?? null, null, 2)),
        h("div.actions.start", null, doing("button", "Send again", wrong, async () => {
          await page.change("Redeliver", { id });
          await renew();
          page.say("It is sent again.");
        })));
    } catch (failure) {
      loaded = false;
      if (failure.name === "AbortError") return;
      wrong.textContent = failure.message;
      wrong.hidden = false;
    }
  }
  return h("li", { "data-box": true }, h("details.card", { ontoggle: load },
    h("summary", { "data-item": true }, symbol(...STATES[state]), ` ${event} `, responseCode === null ? null : h("span", null, `HTTP ${responseCode} `), h("span.quiet", null, ago(createdAt))),
    body, wrong));
}
