// The deliveries of a hook, each with its request and a button that sends it again.

import { doing } from "../discussion.js";
import { h, replace } from "../dom.js";
import * as graph from "../graph.js";
import { ago, more, symbol } from "../parts.js";
import { keepFocus } from "../renewing.js";

const STATES = { DELIVERED: ["SUCCESS", "delivered"], FAILED: ["FAILED", "failed"], PENDING: ["PENDING", "waiting"] };

export const labelOf = (state) => STATES[state][1];

/** The list of deliveries. Those that did not change keep their elements, so that an open one stays open. */
export async function deliveries(page, read) {
  const shown = new Map();
  let further = false;
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
    const { nodes } = await read(null);
    const ids = new Set(nodes.map(({ id }) => id));
    keepFocus(list, () => fill(further ? [...nodes, ...[...shown.values()].map(({ delivery }) => delivery).filter(({ id }) => !ids.has(id))] : nodes));
  }
  const first = await read(null);
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
      const { node } = await graph.request("settings/hook", "Payload", { id }, { signal: page.signal });
      replace(body,
        error ? h("p", null, error) : null,
        h("dl.table", null,
          [["webhook-id", h("code", null, webhookId)], ["Attempts", attempts], ["Next attempt", nextAttemptAt ? ago(nextAttemptAt) : null]]
            .filter(([, value]) => value !== null).map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value)))),
        h("pre.output", { tabindex: 0, role: "region", "aria-label": "Request body" }, JSON.stringify(node?.payload ?? null, null, 2)),
        h("div.actions.start", null, doing("button", "Send again", wrong, async () => {
          await graph.mutate("settings/hook", "Redeliver", { id }, { signal: page.signal });
          await renew();
          page.announce("It is sent again.");
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
