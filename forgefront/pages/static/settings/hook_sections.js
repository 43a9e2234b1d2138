// What the pages of hooks share: the entry of a list, the state in words, and the sections of one hook with its test and deliveries.

import { removal } from "../dialogs.js";
import { doing } from "../discussion.js";
import { h, replace } from "../dom.js";
import { ago, section, symbol } from "../parts.js";
import { entry } from "../project/lists.js";
import { watch } from "../renewing.js";
import { deliveries, labelOf } from "./deliveries.js";
import { EVENTS } from "./hook_form.js";

const POLL = 3000;

export const hookEntry = (href, hook) =>
  entry(
    [state(hook), h("a", { href, "data-item": true }, hook.url)],
    [EVENTS.filter(([name]) => hook[name]).map(([, word]) => h("span.tag", null, word)), since(hook)], null);

const state = ({ disabledAt, failingSince, lastSuccessAt }) =>
  disabledAt ? symbol("CANCELED", "disabled") : failingSince ? symbol("FAILED", "failing") : lastSuccessAt ? symbol("SUCCESS", "works") : symbol("NONE", "no success yet");

/** In words, what the symbol shows, and since when. */
const since = ({ disabledAt, failingSince, lastSuccessAt }) =>
  disabledAt ? h("span", null, "disabled ", ago(disabledAt))
    : failingSince ? h("span", null, "first failure ", ago(failingSince))
      : lastSuccessAt ? h("span", null, "last success ", ago(lastSuccessAt)) : h("span", null, "no success yet");

/**
 * The sections of a hook. `read()` returns the hook, `readDeliveries(after)` a connection, `test()` a delivery; `remove()` removes the hook,
 * and leaves the page. Returns the hook, and the sections, of which the first has no heading.
 */
export async function hookSections(page, { read, readDeliveries, test, remove }) {
  const [hook, sent] = await Promise.all([read(), deliveries(page, readDeliveries)]);
  const facts = h("p.facts", { role: "status" });
  const describe = ({ disabledReason, ...state }) => replace(facts, since(state), disabledReason ? h("span", null, disabledReason) : null);
  const wrong = h("p.wrong", { role: "alert", hidden: true });
  const renew = async () => {
    describe(await read());
    await sent.renew();
  };
  describe(hook);
  watch(page, POLL, () => (sent.waits() ? renew() : Promise.resolve()));
  return {
    hook,
    sections: [
      h("div.stack", null,
        h("p.address", null, h("code", null, hook.url)),
        facts,
        h("div.actions.start", null,
          doing("button", "Send a test", wrong, async () => {
            const { delivery } = await test();
            await renew();
            page.announce(`The test is ${labelOf(delivery.state)}.`);
          }),
          removal(page, {
            label: "Remove the hook", title: "Remove the hook?", text: "Its deliveries are removed too. Nothing is sent to it any more.",
            async act() {
              await remove();
              page.announce("The hook is removed.");
            },
          })),
        wrong),
      section("Deliveries", h("span.part-side", null, "last 30 days"), sent.element),
    ],
  };
}
