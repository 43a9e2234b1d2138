// What somebody has typed and not sent yet, stored for this tab until it is sent or the person signs out.

import { h } from "../dom.js";
import { DRAFT_PREFIX } from "../session.js";

const PAUSE = 300;

const prefix = (page) => `${DRAFT_PREFIX}${page.viewer.username} ${location.pathname}${location.search}`;

/** Keys of drafts that are being sent. They stay stored until the service has answered, since a reload of the page would lose them otherwise. */
const beingSent = new Set();

/**
 * The draft of a form: `read()`, `write(values)` and `remove()`. It is found again at the same address by the same person. `name`
 * distinguishes the forms of a page. `send(act)` runs `act`, which sends the draft and shows the result: `read()` returns null meanwhile.
 */
export function draft(page, name = "") {
  const key = name ? `${prefix(page)} ${name}` : prefix(page);
  return {
    read() {
      if (beingSent.has(key)) return null;
      try {
        return JSON.parse(sessionStorage.getItem(key) ?? "null");
      } catch {
        return null;
      }
    },
    write(values) {
      try {
        sessionStorage.setItem(key, JSON.stringify(values));
      } catch {
        // Storage is unavailable or full: the draft is lost with the page.
      }
    },
    remove: () => sessionStorage.removeItem(key),
    async send(act) {
      beingSent.add(key);
      try {
        await act();
      } finally {
        beingSent.delete(key);
      }
    },
  };
}

/** The names of the drafts at this address. */
export function draftNames(page) {
  const start = `${prefix(page)} `;
  try {
    return Object.keys(sessionStorage).filter((key) => key.startsWith(start)).map((key) => key.slice(start.length));
  } catch {
    return [];
  }
}

/** The values of a form by name, as booleans for checkboxes, without passwords. */
export const typedValues = (element) =>
  Object.fromEntries([...element.elements].filter((each) => each.name && each.type !== "password").map((each) => [each.name, each.type === "checkbox" ? each.checked : each.value]));

/**
 * Stores what is typed into a form in `stored`, a draft, as `{values, base}`: the values by name, and what they are based on. Returns a
 * function that removes the draft, to call when it was sent. Passwords are not stored.
 */
export function keepTyped(page, element, stored, base = null) {
  let waiting = null;
  const store = () => {
    waiting = null;
    stored.write({ values: typedValues(element), base });
  };
  element.addEventListener("input", () => (waiting ??= setTimeout(store, PAUSE)));
  // The last words before a navigation are stored too.
  const storeNow = () => {
    if (waiting === null) return;
    clearTimeout(waiting);
    store();
  };
  page.signal.addEventListener("abort", storeNow);
  addEventListener("pagehide", storeNow, { signal: page.signal });
  return () => {
    clearTimeout(waiting);
    waiting = null;
    stored.remove();
  };
}

/** Puts values by name into a form. */
export function restore(element, values) {
  for (const each of element.elements) {
    if (!each.name || !Object.hasOwn(values, each.name)) continue;
    if (each.type === "checkbox") each.checked = Boolean(values[each.name]);
    else each.value = values[each.name];
  }
}

/** Says that a draft is shown, with a button that discards it. */
export const draftNotice = (stored, words = "This is what you typed before and did not send.") =>
  h("div.draft-note", { role: "status" }, h("span", null, words), h("button", { type: "button", onclick: () => (stored.remove(), location.reload()) }, "Discard it"));
