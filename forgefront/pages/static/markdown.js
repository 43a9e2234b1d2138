// Texts that the server rendered from Markdown. This is the only module that parses HTML, by a policy that the content security policy names.
// The HTML is parsed into a document of its own, where nothing loads and nothing runs, and only known elements are built again from it.

import { base } from "./address.js";
import { h } from "./dom.js";
import { imageType } from "./images.js";
import * as session from "./session.js";

const policy = globalThis.trustedTypes?.createPolicy("markdown", { createHTML: (html) => html }) ?? { createHTML: (html) => html };

const ATTRIBUTES = { A: ["href", "title"], CODE: ["data-suggestion"], OL: ["start"], TH: ["align"], TD: ["align"] };
const ELEMENTS = new Set("A BLOCKQUOTE BR CODE DEL EM H1 H2 H3 H4 H5 H6 HR IMG INPUT LI OL P PRE S STRONG TABLE TBODY TD TH THEAD TR UL".split(" "));
/** The address of a file of a project: the path of the project, and that of the file. */
const FILE = /^\/([^/]+\/[^/]+)\/files\/(.+)$/;
const MAX_IMAGE_BYTES = 10_000_000;
const UPLOAD = /\/uploads\/[0-9a-f]{32}\/[^/]+$/;

/** A text as the server rendered it, such as `descriptionHtml`. */
export function markdown(html) {
  const parsed = new DOMParser().parseFromString(policy.createHTML(html), "text/html");
  return h("div.prose.markdown", { onclick: goToHeading }, children(parsed.body));
}

/** A link to a heading of the same text, as in a table of contents, scrolls to it. Headings have no ids, which could be those of the page. */
function goToHeading({ target, currentTarget }) {
  const link = target.closest('a[href^="#"]');
  const heading = link && [...currentTarget.querySelectorAll("h3, h4, h5, h6")].find((each) => `#${slugOf(each.textContent)}` === link.hash.toLowerCase());
  // Once the address has changed, with which the place before is stored.
  if (heading) setTimeout(() => heading.scrollIntoView());
}

/** The name of a heading in links, as GitHub and GitLab have it, in the form of the hash of a link. */
const slugOf = (text) => encodeURI(text.trim().toLowerCase().replace(/[^\p{L}\p{N}\s_-]/gu, "").replace(/\s/g, "-")).toLowerCase();

const children = (node) => [...node.childNodes].map(rebuilt);

function rebuilt(node) {
  if (node.nodeType === Node.TEXT_NODE) return node.data;
  if (!ELEMENTS.has(node.nodeName)) return children(node);
  if (node.nodeName === "IMG") return image(node);
  if (node.nodeName === "INPUT") return h("input", { type: "checkbox", disabled: true, checked: node.hasAttribute("checked"), "aria-label": node.getAttribute("aria-label") });
  const attributes = Object.fromEntries((ATTRIBUTES[node.nodeName] ?? []).map((name) => [name, node.getAttribute(name)]));
  if (node.nodeName === "A") attributes.rel = "noopener noreferrer nofollow";
  const element = h(tagOf(node.nodeName), attributes, children(node));
  if (node.hasAttribute("data-image")) linkedImage(element);
  if (node.nodeName === "A") attachment(element);
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

/** A link to an upload saves the file, since a navigation cannot carry the token. */
function attachment(link) {
  if (link.origin !== location.origin || !link.pathname.startsWith(`${base}/`) || !UPLOAD.test(link.pathname)) return;
  const wrong = h("span.wrong", { role: "alert" });
  link.addEventListener("click", async (event) => {
    event.preventDefault();
    wrong.remove();
    try {
      const { save } = await import("./project/downloads.js");
      await save({}, link.href, decodeURIComponent(link.pathname.split("/").at(-1)));
    } catch (error) {
      wrong.textContent = ` ${error.message}`;
      link.after(wrong);
    }
  });
}

/** A link of a file to an image in the repository shows it, once a reader comes near it; the link stays if it is large, or missing. */
function linkedImage(link) {
  const { pathname, searchParams } = new URL(link.href);
  const [, path, place] = FILE.exec(pathname.slice(base.length)) ?? [];
  const type = imageType(place ?? "");
  const ref = searchParams.get("ref");
  if (!type || !ref || !pathname.startsWith(`${base}/`)) return;
  const shown = h("img", { alt: link.textContent });
  shown.addEventListener("load", () => link.replaceChildren(shown));
  nearby(link, () => load(shown, `${base}/api/v3/projects/${encodeURIComponent(decodeURIComponent(path))}/repository/blobs/${encodeURIComponent(ref)}?filepath=${place}`, type));
}

function nearby(element, act) {
  const observer = new IntersectionObserver((entries) => {
    if (!entries.some((each) => each.isIntersecting)) return;
    observer.disconnect();
    act();
  }, { rootMargin: "300px" });
  observer.observe(element);
}

/** Shows the bytes of an address; as `type`, where the service does not say what they are. */
async function load(shown, path, type = null) {
  try {
    const response = await fetch(path, { headers: { "PRIVATE-TOKEN": session.token() }, credentials: "omit" });
    if (!response.ok || Number(response.headers.get("Content-Length")) > MAX_IMAGE_BYTES) {
      response.body?.cancel();
      return;
    }
    const reader = new FileReader();
    reader.onload = () => (shown.src = reader.result);
    const bytes = await response.blob();
    reader.readAsDataURL(type ? new Blob([bytes], { type }) : bytes);
  } catch {
    // The alternative text stays.
  }
}
