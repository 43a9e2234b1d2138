// Addresses of this service. All are below one base, which is a path where a proxy serves the service under a path.

/** The path of the folder of these files, with a slash: "/-/pages/0123456789abcdef/". The last part is the version of the files. */
export const files = new URL(".", import.meta.url).pathname;

export const base = files.slice(0, files.lastIndexOf("/-/pages/"));

/** `address("demo/tools", "issues", 3)` is "/demo/tools/issues/3" after the base. Full paths keep their slash. */
export const address = (...segments) =>
  `${base}/${segments.map((each) => String(each).split("/").map(encodeURIComponent).join("/")).join("/")}`;

/** The path of a location without the base, for the router. */
export const pathOf = (location) => decoded(location.pathname.slice(base.length)) || "/";

/** A URL from data, or null if a link must not point to it: only http and https are allowed. */
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
