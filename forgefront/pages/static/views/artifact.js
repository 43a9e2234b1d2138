// The files in the artifact of a build: a folder of the archive, or one of its files as text or as an image.

import { address } from "../address.js";
import { artifactAddress, entryRows, isArchive, styles } from "../artifact/listing.js";
import { doing } from "../discussion.js";
import { h, replace } from "../dom.js";
import { errorIn } from "../graph.js";
import { imageType } from "../images.js";
import { empty, more } from "../parts.js";
import { projectCrumbs } from "../project/crumbs.js";
import { fetched, save } from "../project/downloads.js";
import { lines } from "../repository/lines.js";
import { size } from "../sizes.js";

const PAGE_ENTRIES = 200;
const MAX_SHOWN_BYTES = 1024 * 1024;

export async function open(page) {
  const { path, number, at = "" } = page.where;
  const place = at.replace(/\/+$/, "");
  const isFolder = !place || location.pathname.endsWith("/");
  const about = { path, id: Number(number), at: place };
  const read = (after) => page.request("Folder", { ...about, first: PAGE_ENTRIES, after });
  const [data] = await Promise.all([isFolder ? read(null) : page.request("File", about), styles()]);
  const { project } = data;
  if (!project?.build) throw page.missing("build");
  const { artifact, build } = project;
  const builds = [["Builds", address(path, "builds")], [`${build.name} #${build.databaseId}`, address(path, "builds", build.databaseId)]];
  page.title(`${place || "Artifact"} · ${build.name} #${build.databaseId}`, projectCrumbs(project, ...builds));
  if (!artifact) {
    page.show(h("h1", null, "Artifact"), empty("No artifact", "The build has none, or it was deleted."));
    return;
  }
  const wrong = h("p.wrong", { role: "alert", hidden: true });
  const slot = h("div");
  page.show(h("h1.unseen", null, `Artifact of ${build.name}`),
    h("div.file-bar", null, trail(path, build, artifact, place, isFolder),
      h("div.actions", null, doing("button", `Download ${artifact.filename} (${size(artifact.size)})`, wrong, () => save(page, artifact.downloadUrl, artifact.filename)))),
    wrong, slot);
  const reason = errorIn(data);
  if (!(isFolder ? artifact.entries : artifact.file)) {
    const heading = reason?.code === "NOT_FOUND" ? "Not in this artifact" : isFolder ? "The archive cannot be listed" : "The file cannot be shown";
    replace(slot, empty(heading, isArchive(artifact.filename) ? reason?.message ?? "" : "Only zip archives are shown. Download the artifact."));
  } else if (isFolder) {
    replace(slot, folder(path, build, artifact.entries, async (after) => (await read(after)).project.artifact.entries));
  } else {
    replace(slot, await file(page, artifact.file));
  }
}

/** The path in the archive; its parts lead to the folders. */
function trail(path, build, artifact, place, isFolder) {
  const names = place ? place.split("/") : [];
  const parts = [[artifact.filename, artifactAddress(path, build.databaseId, "")], ...names.map((name, index) => {
    const isLast = index === names.length - 1;
    return [name, artifactAddress(path, build.databaseId, names.slice(0, index + 1).join("/"), { isFolder: !isLast || isFolder })];
  })];
  return h("nav.file-path", { "aria-label": "Path" }, h("ol", null,
    parts.map(([name, href], index) => h("li", null, h("a", { href, "aria-current": index === parts.length - 1 ? "page" : null }, name)))));
}

function folder(path, build, entries, read) {
  if (!entries.nodes.length) return empty("Empty", "There is nothing in this folder.");
  const list = h("ol.rows.files", { "data-walk": true, "aria-label": "Files" }, entryRows(path, build.databaseId, entries.nodes));
  return [list, more(entries.pageInfo, async (after) => {
    const next = await read(after);
    list.append(...entryRows(path, build.databaseId, next.nodes));
    return next.pageInfo;
  }, "Show more files")];
}

/** A file: its lines or the image, if it is small enough, and a button that saves it. */
async function file(page, { name, size: bytes, downloadUrl }) {
  const wrong = h("p.wrong", { role: "alert", hidden: true });
  const shown = h("div");
  const facts = h("p.file-facts", null, h("span", null, size(bytes)));
  const element = h("section.file-view", { "aria-label": name }, h("h2.unseen", null, name),
    h("header.file-head", null, facts, h("div.actions", null, doing("button", "Download", wrong, () => save(page, downloadUrl, name)))), wrong, shown);
  if (Number(bytes) > MAX_SHOWN_BYTES) {
    replace(shown, h("p.file-note", null, `A file of more than ${size(MAX_SHOWN_BYTES)} is not shown. Download it.`));
    return element;
  }
  let contents;
  try {
    contents = new Uint8Array(await (await fetched(page, downloadUrl)).arrayBuffer());
  } catch (error) {
    if (error.name === "AbortError") throw error;
    replace(shown, h("p.file-note", null, error.message));
    return element;
  }
  const type = imageType(name);
  const text = textOf(contents);
  if (type) replace(shown, h("div.image", null, h("img", { alt: name, src: `data:${type};base64,${base64(contents)}` })));
  else if (text === null) replace(shown, h("p.file-note", null, "This file is binary, so it is not shown as text."));
  else if (!text) replace(shown, h("p.file-note", null, "This file is empty."));
  else {
    const printed = lines(text, name);
    facts.prepend(h("span", null, `${printed.count} ${printed.count === 1 ? "line" : "lines"}`));
    replace(shown, printed.element);
    if (location.hash) requestAnimationFrame(() => printed.goTo(location.hash));
    addEventListener("hashchange", () => printed.goTo(location.hash), { signal: page.signal });
  }
  return element;
}

/** The text of a file; null if it is binary. */
function textOf(contents) {
  if (contents.includes(0)) return null;
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(contents);
  } catch {
    return null;
  }
}

function base64(contents) {
  let letters = "";
  for (let at = 0; at < contents.length; at += 8192) letters += String.fromCharCode(...contents.subarray(at, at + 8192));
  return btoa(letters);
}
