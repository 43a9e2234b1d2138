// The files of a project at a branch, a tag or a commit: a directory or a file.

import { address } from "../../address.js";
import { h, replace } from "../../dom.js";
import { errorIn } from "../../graph.js";
import { markdown } from "../../markdown.js";
import { ago, avatar, empty, prose, section } from "../../parts.js";
import { downloads } from "../../project/downloads.js";
import { compareAddress, contributorsAddress, fileAddress, folderAddress, historyAddress, newFileAddress, searchAddress } from "../../repository/addresses.js";
import { file } from "../../repository/file.js";
import { pathBar, refChoice, refName, showFiles } from "../../repository/file_bar.js";
import { folder, readmeOf } from "../../repository/folder.js";
import { styles } from "../../repository/styles.js";

export async function open(page) {
  const { path, at: place = "" } = page.where;
  const given = page.query.get("ref") || null;
  const isFolder = !place || location.pathname.endsWith("/");
  const [found, around] = await Promise.all([find(page, path, given, place, isFolder), page.request("Refs", { path, ref: given }), styles()]);
  const { project } = found;
  const refs = around.project ?? {};
  const ref = given ?? project.defaultBranch;
  const [newest] = refs.commits?.nodes ?? [];
  const bar = h("div.file-bar", null,
    refChoice(page, path, refs, ref, (name) => (found.blob ? fileAddress : folderAddress)(path, place, name)),
    pathBar(project, place, ref, { isFile: Boolean(found.blob) }),
    newest ? links(project, refs.branch, place, ref) : null);

  if (found.blob) {
    const shown = file(page, path, ref, found.blob, { branch: refs.branch?.name, mayChange: project.viewerCan.pushCode });
    const change = h("div.change-slot");
    showFiles(page, project, { place, ref }, bar, change, shown.element);
    page.request("FileChange", { path, ref: found.blob.commitOid, at: place })
      .then(({ project: { blob } }) => blob?.lastCommit && replace(change, newestCommit(path, blob.lastCommit)))
      .catch(() => {});
    if (location.hash) shown.goTo(location.hash);
    addEventListener("hashchange", () => shown.goTo(location.hash), { signal: page.signal });
  } else if (found.tree) {
    const mayChange = refs.branch && project.viewerCan.pushCode;
    bar.append(...[place ? null : downloads(page, path, ref), mayChange ? h("a.button", { href: newFileAddress(path, place && `${place}/`, refs.branch.name) }, "New file") : null].filter(Boolean));
    showFiles(page, project, { place, ref }, bar, newest ? newestCommit(path, newest) : null,
      folder(path, ref, found.tree, async (after) => (await page.request("Folder", { path, ref, at: place, after })).project.tree,
        async (after) => (await page.request("FolderChanges", { path, ref: newest?.oid ?? ref, at: place, after })).project.tree.nodes),
      await readme(page, path, ref, found.tree));
  } else {
    showFiles(page, project, { place, ref }, bar, absent(project, refs, place, ref, found.error));
  }
}

/** What is at the path: first what the address names, a directory by a slash at its end, then the other. */
async function find(page, path, ref, place, isFolder) {
  let error = null;
  let project = null;
  for (const kind of isFolder ? ["Folder", "File"] : ["File", "Folder"]) {
    if (kind === "File" && !place) break;
    const data = await page.request(kind, { path, ref, at: place, ...(kind === "Folder" && { after: null }) });
    project = data.project;
    if (!project) throw page.missing("project");
    if (project.tree || project.blob) {
      if ((kind === "Folder") !== isFolder) page.setAddress((kind === "Folder" ? folderAddress : fileAddress)(path, place, ref) + location.hash);
      return project.tree ? { project, tree: project.tree } : { project, blob: project.blob };
    }
    error = errorIn(data) ?? error;
    if (error && error.code !== "NOT_FOUND") break;
  }
  return { project, error };
}

const links = ({ fullPath: path, defaultBranch }, branch, place, ref) =>
  h("nav.file-links", { "aria-label": "More about these files" },
    branch ? h("a", { href: place ? historyAddress(path, place, branch.name) : `${address(path, "commits")}?ref=${encodeURIComponent(ref)}` }, "History") : null,
    h("a", { href: searchAddress(path, ref) }, "Search"),
    place ? null : h("a", { href: contributorsAddress(path, ref) }, "Contributors"),
    place ? null : h("a", { href: compareAddress(path, defaultBranch, ref === defaultBranch ? "" : ref) }, "Compare"));

const newestCommit = (path, { oid, shortOid, title, committedAt, authorName, author }) =>
  h("p.newest", null, h("span.person", null, avatar(author, authorName), h("span", null, author?.name ?? authorName)),
    h("a.newest-title", { href: address(path, "commit", oid), title }, title), h("code", null, shortOid), ago(committedAt));

/** The README of a directory: rendered if it is Markdown, otherwise as text. */
async function readme(page, path, ref, { nodes }) {
  const entry = readmeOf(nodes);
  if (!entry) return null;
  const { project } = await page.request("File", { path, ref, at: entry.path });
  const { html, text } = project?.blob ?? {};
  const shown = html ? markdown(html) : text ? h("div.plain", null, prose(text)) : null;
  return shown && h("div.readme", null, section(entry.name, null, h("div.card", null, shown)));
}

/** Why there is nothing to show, and where to go from there. */
function absent(project, refs, place, ref, error) {
  const { fullPath: path, defaultBranch, viewerCan } = project;
  const go = (href, word) => h("a.button", { href }, word);
  if (!viewerCan.readCode) return empty("No access to the code", "You can see this project, but not its code.");
  if (error && error.code !== "NOT_FOUND") return empty("The files cannot be shown", error.message);
  if (!refs.branches?.nodes.length && !refs.commits?.nodes.length) {
    return empty("No files yet", viewerCan.pushCode ? "Push to the address above, or create the first file here." : "Nothing has been pushed to this project yet.",
      viewerCan.pushCode ? go(newFileAddress(path, "", defaultBranch ?? "main"), "Create the first file") : null);
  }
  if (!refs.commits?.nodes.length) {
    return empty(`There is no ${refName(ref)}`, "No branch, tag or commit has this name. It may have been deleted.",
      ref === defaultBranch ? null : go(folderAddress(path, place, null), "Show the default branch"));
  }
  return empty("Not in this version", h("span", null, h("code", null, place), " is not in ", h("code", null, refName(ref)), "."),
    h("span.actions", null, go(folderAddress(path, "", ref), "All files"), refs.branch ? go(historyAddress(path, place, refs.branch.name), "Its history") : null,
      refs.branch && viewerCan.pushCode ? go(newFileAddress(path, place, refs.branch.name), "Create it") : null));
}
