// The styles of files, which only their pages load.

import { base } from "../address.js";
import { h } from "../dom.js";

let loading = null;

/** Fulfilled when the styles are there. */
export const styles = () =>
  (loading ??= new Promise((resolve) => {
    document.head.append(h("link", { rel: "stylesheet", href: `${base}/-/pages/styles/files.css`, onload: resolve, onerror: resolve }));
  }));
