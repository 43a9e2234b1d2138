// What the pages of runners share: the state of a runner, and the token that registers new ones.

import { removal } from "../dialogs.js";
import { doing } from "../discussion.js";
import { h, replace } from "../dom.js";

/** Milliseconds after its last call during which a runner counts as online, as for the graph. */
const ONLINE = 5 * 60_000;

/** A symbol and a word. */
export function stateOf({ active, contactedAt }) {
  if (!active) return ["CANCELED", "paused"];
  if (!contactedAt) return ["NONE", "never seen"];
  return Date.now() - new Date(contactedAt) < ONLINE ? ["SUCCESS", "online"] : ["NONE", "offline"];
}

/** The token that registers runners. `read()` loads it when somebody asks to see it; `replaced()` replaces it, and returns the new one. */
export function registration(page, { read, replaced }) {
  const wrong = h("p.wrong", { role: "alert", hidden: true });
  const token = h("code.token", { tabindex: 0, hidden: true });
  const display = (value) => {
    replace(token, value ?? "You may not see the token.");
    token.hidden = false;
    token.focus();
  };
  const show = doing("button", "Show the token", wrong, async () => {
    display(await read());
    show.hidden = true;
  });
  return [
    h("div.actions.start", null, token, show, removal(page, {
      word: "Replace the token", label: "Replace the token", title: "Replace the token?", text: "The current token can no longer register runners. Registered runners keep working.",
      async act() {
        const value = await replaced();
        show.hidden = true;
        display(value);
        page.announce("The token is replaced.");
      },
    })), wrong];
}
