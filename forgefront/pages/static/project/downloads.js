// Downloads. A link cannot send the token, so files are fetched and then saved.

import { doing } from "../discussion.js";
import { h } from "../dom.js";
import * as graph from "../graph.js";
import * as session from "../session.js";

const FORMATS = [["TAR_GZ", "tar.gz"], ["ZIP", "zip"], ["TAR_BZ2", "tar.bz2"], ["TAR", "tar"]];

/** The response with the file at a URL of this service. Throws an error that says why there is none. */
export async function fetched(page, href) {
  const { pathname, search } = new URL(href, location.origin);
  const response = await fetch(pathname + search, { headers: { "PRIVATE-TOKEN": session.token() }, signal: page.signal, credentials: "omit" });
  if (response.ok) return response;
  const reason = response.status === 400 ? (await response.json().catch(() => null))?.message : null;
  throw new Error(reason ?? `The file cannot be downloaded (${response.status}).`);
}

/** Saves the file at a URL of this service. */
export async function save(page, href, filename) {
  const response = await fetched(page, href);
  const url = URL.createObjectURL(await response.blob());
  const link = h("a", { download: filename });
  link.href = url;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

/** A menu of archives of the files of a branch or a tag; nothing without one. */
export function downloads(page, path, ref) {
  if (!ref) return null;
  const wrong = h("p.wrong", { role: "alert", hidden: true });
  return h("details.menu", null,
    h("summary", { "aria-label": `Download ${ref}` }, "Download"),
    h("div.actions.start", { role: "group", "aria-label": `Formats of ${ref}` }, FORMATS.map(([format, word]) => doing("button", word, wrong, async () => {
      const { project } = await graph.request("archive", "Archive", { path, ref, format }, { signal: page.signal });
      if (!project?.archive) throw page.missing("archive");
      await save(page, project.archive.downloadUrl, project.archive.name);
      page.announce(`${project.archive.name} is downloaded.`);
    }))), wrong);
}
