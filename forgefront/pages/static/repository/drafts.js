// What somebody has typed and not sent yet, stored for this tab until it is sent or the person signs out.

import { DRAFT_PREFIX } from "../session.js";

/** The draft of a form: `read()`, `write(values)` and `remove()`. It is found again at the same address by the same person. */
export function draft(page) {
  const key = `${DRAFT_PREFIX}${page.viewer.username} ${location.pathname}${location.search}`;
  return {
    read() {
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
        // Storage is unavailable or full: the text lasts as long as the page.
      }
    },
    remove: () => sessionStorage.removeItem(key),
  };
}
