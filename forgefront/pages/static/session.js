// The session: a private token, stored for this tab, or in this browser if the user chose so. It is sent only to this service, as a
// header; there is no cookie that another site could use.

const KEY = "forgefront.session";

/** @returns {{token: string, until: number|null}|null} `until` in milliseconds, if sessions expire. */
function stored() {
  for (const store of stores()) {
    try {
      const found = JSON.parse(store.getItem(KEY) ?? "null");
      if (found && typeof found.token === "string" && !(found.until && found.until < Date.now())) return found;
    } catch {
      // Not a session of these pages.
    }
  }
  return null;
}

let current = stored();

export const token = () => {
  if (current?.until && current.until < Date.now()) current = null;
  return current?.token ?? null;
};

/** Whether the session began at the OpenID provider, which then has a session of its own. */
export const isFromProvider = () => Boolean(current?.fromProvider);

/** Stores a token; `stay`: also after the browser is closed. `minutes` 0: without expiry. */
export function begin(newToken, { stay, minutes, fromProvider = false }) {
  end();
  current = { token: newToken, until: minutes > 0 ? Date.now() + minutes * 60_000 : null, fromProvider };
  try {
    (stay ? localStorage : sessionStorage).setItem(KEY, JSON.stringify(current));
  } catch {
    // Storage is unavailable: the session is lost with the page.
  }
}

export function end() {
  current = null;
  for (const store of stores()) store.removeItem(KEY);
}

export const DRAFT_PREFIX = "forgefront.draft ";

/** Removes what was typed in this tab and not sent. A session that expires leaves it for the person who signs in again. */
export function removeDrafts() {
  for (const store of stores()) for (const key of Object.keys(store)) if (key.startsWith(DRAFT_PREFIX)) store.removeItem(key);
}

/** Calls the listener when another tab signs in or out. */
export function onChange(listener) {
  addEventListener("storage", (event) => {
    if (event.key !== KEY) return;
    current = stored();
    listener();
  });
}

function stores() {
  try {
    return [sessionStorage, localStorage];
  } catch {
    return [];
  }
}
