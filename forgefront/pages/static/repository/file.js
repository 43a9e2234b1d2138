// A file: its lines, or the image that it is, and what can be done with it.

import { base } from "../address.js";
import { doing } from "../discussion.js";
import { h, replace } from "../dom.js";
import { imageType } from "../images.js";
import { markdown } from "../markdown.js";
import { save } from "../project/downloads.js";
import { size } from "../sizes.js";
import { blameAddress, editFileAddress, fileAddress, removeFileAddress } from "./addresses.js";
import { lines } from "./lines.js";

const MAX_IMAGE_BYTES = 2_000_000;
const WORDS = { 100755: "executable", 120000: "symbolic link" };

/** A file. `branch` is the branch at which it is shown, if it is one, and `mayChange` whether the viewer may push to the project. */
export function file(page, path, ref, blob, { branch, mayChange }) {
  const wrong = h("p.wrong", { role: "alert", hidden: true });
  const printed = blob.text === null || blob.mode === "120000" ? null : lines(blob.text, blob.name);
  const type = imageType(blob.name);
  const raw = `${base}/api/v3/projects/${encodeURIComponent(path)}/repository/blobs/${blob.commitOid}?filepath=${encodeURIComponent(blob.path)}`;
  const element = h("section.file-view", { "aria-label": blob.name },
    h("h2.unseen", null, blob.name),
    h("header.file-head", null,
      h("p.file-facts", null,
        printed && !blob.truncated ? h("span", null, `${printed.count} ${printed.count === 1 ? "line" : "lines"}`) : null,
        h("span", null, size(blob.size)), WORDS[blob.mode] ? h("span.tag", null, WORDS[blob.mode]) : null),
      printed ? goToLine(printed) : null,
      h("div.actions", null,
        // The marked lines are those of this moment.
        ref === blob.commitOid ? null : h("a.button", {
          href: fileAddress(path, blob.path, blob.commitOid), title: "The file as it is in this commit", onclick: ({ currentTarget: link }) => (link.hash = location.hash),
        }, "Permalink"),
        printed?.count && !blob.truncated ? h("a.button", { href: blameAddress(path, blob.path, ref) }, "Blame") : null,
        doing("button", "Download", wrong, () => save(page, raw, blob.name)),
        branch && mayChange ? [
          blob.isBinary || blob.truncated || blob.mode === "120000" ? null : h("a.button", { href: editFileAddress(path, blob.path, branch) }, "Edit"),
          h("a.button.danger", { href: removeFileAddress(path, blob.path, branch) }, "Remove"),
        ] : null)),
    wrong,
    type && blob.mode !== "120000" ? image(page, path, blob, type) : null,
    blob.html ? rendered(blob.html, contents(blob, printed, type)) : contents(blob, printed, type));
  return { element, goTo: (hash) => printed?.goTo(hash) };
}

/** A Markdown file, with its source below: what names a line, opens it. */
const rendered = (html, source) => [
  h("div.rendered", null, markdown(html)),
  h("details.source", { open: Boolean(location.hash) }, h("summary", null, "Source"), source),
];

function contents(blob, printed, type) {
  if (blob.mode === "120000") return h("p.file-note", null, "It points to ", h("code", null, blob.text ?? "?"), ".");
  if (!printed) return type ? null : h("p.file-note", null, Number(blob.size) > 8 * 1024 * 1024 ? "This file is too large to be shown." : "This file is binary, so it is not shown as text.");
  return [
    blob.truncated ? h("p.file-note", null, "This is the first MiB of the file. Download it to see the rest.") : null,
    printed.count ? printed.element : h("p.file-note", null, "This file is empty."),
  ];
}

function goToLine(printed) {
  const field = h("input", { id: "line", "data-filter": true, inputmode: "numeric", placeholder: "Line", autocomplete: "off", "aria-describedby": "line-hint" });
  const submit = (event) => {
    event.preventDefault();
    field.setAttribute("aria-invalid", String(!printed.goTo(field.value)));
  };
  return h("form.go-to-line", { onsubmit: submit }, h("label.unseen", { for: "line" }, "Go to line"), field, h("span.unseen", { id: "line-hint" }, "A number such as 10, or 10-20."));
}

/** The image, loaded as data, since an image's URL cannot carry the token. What an image contains does not run. */
function image(page, path, { name, path: place, size: bytes, commitOid }, type) {
  if (Number(bytes) > MAX_IMAGE_BYTES) return h("p.file-note", null, `An image of more than ${size(MAX_IMAGE_BYTES)} is not shown.`);
  const box = h("div.image", null, h("p.quiet", null, "Loading the image…"));
  const fail = () => replace(box, h("p.quiet", null, "The image cannot be shown."));
  page.request("Image", { path, ref: commitOid, at: place })
    .then(({ project }) => replace(box, h("img", { alt: name, onerror: fail, src: `data:${type};base64,${project.blob.base64}` })))
    .catch((error) => error.name === "AbortError" || fail());
  return box;
}
