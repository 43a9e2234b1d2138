// Texts that the server rendered from Markdown. This is the only module that parses HTML, by a policy that the content security policy names.
// The HTML is parsed into a document of its own, where nothing loads and nothing runs, and only known elements are built again from it.

import { base } from "./address.js";
import { h } from "./dom.js";
import * as session from "./session.js";

const policy = globalThis.trustedTypes?.createPolicy("markdown", { createHTML: (html) => html }) ?? { createHTML: (html) => html };

const ATTRIBUTES = { A: ["href", "title"], CODE: ["data-suggestion"], OL: ["start"], TH: ["align"], TD: ["align"] };
const ELEMENTS = new Set("A BLOCKQUOTE BR CODE DEL EM H1 H2 H3 H4 H5 H6 HR IMG INPUT LI OL P PRE S STRONG TABLE TBODY TD TH THEAD TR UL".split(" "));
const UPLOAD = /\/uploads\/[0-9a-f]{32}\/[^/]+$/;

/** A text as the server rendered it, such as `descriptionHtml`. */
export function markdown(html) {
  const parsed = new DOMParser().parseFromString(policy.createHTML(html), "text/html");
  return h("div.prose.markdown", null, children(parsed.body));
}

const children = (node) => [...node.childNodes].map(rebuilt);

function rebuilt(node) {
  if (node.nodeType === Node.TEXT_NODE) return node.data;
  if (!ELEMENTS.has(node.nodeName)) return children(node);
  if (node.nodeName === "IMG") return image(node);
  if (node.nodeName === "INPUT") return h("input", { type: "checkbox", disabled: true, checked: node.hasAttribute("checked"), "aria-label": node.getAttribute("aria-label") });
  const attributes = Object.fromEntries((ATTRIBUTES[node.nodeName] ?? []).map((name) => [name, node.getAttribute(name)]));
  if (node.nodeName === "A") attributes.rel = "noopener noreferrer nofollow";
  const element = h(tagOf(node.nodeName), attributes, children(node));
  // Wide blocks scroll by themselves, also by keyboard.
  if (node.nodeName === "PRE") element.tabIndex = 0;
  return node.nodeName === "TABLE" ? h("div.table-box", { tabindex: 0, role: "group", "aria-label": "Table" }, element) : element;
}

/** Headings are below those of the page. */
const tagOf = (name) => name.toLowerCase().replace(/^h([1-6])$/, (_, level) => `h${Math.min(Number(level) + 2, 6)}`);

/** An upload, loaded as data, since the URL of an image cannot carry the token. */
function image(node) {
  const alt = node.getAttribute("alt") ?? "";
  const { pathname } = new URL(node.getAttribute("src") ?? "", location.origin);
  const shown = h("img", { alt });
  if (pathname.startsWith(`${base}/`) && UPLOAD.test(pathname)) load(shown, pathname);
  return shown;
}

async function load(shown, path) {
  try {
    const response = await fetch(path, { headers: { "PRIVATE-TOKEN": session.token() }, credentials: "omit" });
    if (!response.ok) return;
    const reader = new FileReader();
    reader.onload = () => (shown.src = reader.result);
    reader.readAsDataURL(await response.blob());
  } catch {
    // The alternative text stays.
  }
}
