// Style sheets that only some pages load.

import { files } from "../address.js";
import { h } from "../dom.js";

const loading = new Map();

/** Fulfilled when the style sheet of this name is there. */
export function sheet(name) {
  if (!loading.has(name)) {
    loading.set(name, new Promise((resolve) => {
      document.head.append(h("link", { rel: "stylesheet", href: `${files}styles/${name}.css`, onload: resolve, onerror: resolve }));
    }));
  }
  return loading.get(name);
}
