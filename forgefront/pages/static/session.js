// Who is signed in: a private token, kept for this tab, or in this browser where that was ticked. It goes out as a header of requests to
// this service and nowhere else; there is no cookie that another site could make use of.

const KEY = "forgefront.session";

/** @returns {{token: string, until: number|null}|null} `until` in milliseconds, where the instance ends sessions. */
function kept() {
  for (const store of stores()) {
    try {
      const found = JSON.parse(store.getItem(KEY) ?? "null");
      if (found && typeof found.token === "string" && !(found.until && found.until < Date.now())) return found;
    } catch {
      // What is not ours is as nothing.
    }
  }
  return null;
}

let current = kept();

export const token = () => {
  if (current?.until && current.until < Date.now()) current = null;
  return current?.token ?? null;
};

/** Keeps a token; `stay`: also when the browser is closed. `minutes` 0: without an end. */
export function begin(given, { stay, minutes }) {
  end();
  current = { token: given, until: minutes > 0 ? Date.now() + minutes * 60_000 : null };
  try {
    (stay ? localStorage : sessionStorage).setItem(KEY, JSON.stringify(current));
  } catch {
    // It lasts as long as the page, then.
  }
}

export function end() {
  current = null;
  for (const store of stores()) store.removeItem(KEY);
}

/** Another tab signed in or out. */
export function onChange(told) {
  addEventListener("storage", (event) => {
    if (event.key !== KEY) return;
    current = kept();
    told();
  });
}

function stores() {
  try {
    return [sessionStorage, localStorage];
  } catch {
    return [];
  }
}
