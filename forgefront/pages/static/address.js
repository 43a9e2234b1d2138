// Addresses of this service: below one base, which is not the root where a proxy serves it under a path.

export const base = new URL("../..", import.meta.url).pathname.replace(/\/$/, "");

/** `address("demo/tools", "issues", 3)` is "/demo/tools/issues/3" with the base in front. Full paths keep their slash. */
export const address = (...segments) =>
  `${base}/${segments.map((each) => String(each).split("/").map(encodeURIComponent).join("/")).join("/")}`;

/** The part of a location that the router knows: its path without the base. */
export const pathOf = (location) => decoded(location.pathname.slice(base.length)) || "/";

/** An address from data, if a link may lead there: http and https only. */
export function outside(text) {
  try {
    const url = new URL(text);
    return url.protocol === "http:" || url.protocol === "https:" ? url.href : null;
  } catch {
    return null;
  }
}

function decoded(path) {
  try {
    return decodeURIComponent(path);
  } catch {
    return path;
  }
}
