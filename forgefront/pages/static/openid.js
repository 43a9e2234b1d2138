// What this tab remembers while it is at the OpenID provider: the ticket of the sign-in, without which the provider's code is useless.

const KEY = "forgefront.openid";

/** `from`: the page that opens afterwards; null for the first page. */
export function begin(ticket, { stay, from }) {
  try {
    sessionStorage.setItem(KEY, JSON.stringify({ ticket, stay, from }));
  } catch {
    throw new Error("This browser does not let pages store anything, which signing in at a provider needs. Use a password or a token.");
  }
}

/** What `begin` stored, once. Throws if this tab has begun no sign-in. */
export function end() {
  let found = null;
  try {
    found = JSON.parse(sessionStorage.getItem(KEY) ?? "null");
    sessionStorage.removeItem(KEY);
  } catch {
    // Not stored by these pages.
  }
  if (typeof found?.ticket !== "string") throw new Error("This sign-in was started in another tab or browser. Start it again here.");
  return { ticket: found.ticket, stay: found.stay === true, from: typeof found.from === "string" && /^\/(?!\/)/.test(found.from) ? found.from : null };
}

/** What the provider has added to the address, or null. */
export function read(query) {
  const state = query.get("state");
  if (query.get("error")) return { error: query.get("error_description") || query.get("error") };
  return state && query.get("code") ? { code: query.get("code"), state, issuer: query.get("iss") } : null;
}
