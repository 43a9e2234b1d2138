// Addresses of files that other servers have, "tree/REF/PATH" and "blob/REF/PATH", of which there are links everywhere: finds the ref, and
// goes to the page of the file.

import { fileAddress, folderAddress } from "../../repository/addresses.js";

const MAX_PARTS = 8;
const COMMIT_ID = /^[0-9a-f]{40}([0-9a-f]{24})?$/;

export async function open(page) {
  const { path, kind, rest } = page.where;
  const names = rest.split("/").filter(Boolean);
  // Of two branches, none has a name that is a directory of the other's, so the first that exists is the one.
  for (let count = 1; count <= Math.min(names.length, MAX_PARTS); count++) {
    const ref = names.slice(0, count).join("/");
    const { project } = await page.request("Ref", { path, name: ref });
    if (!project) throw page.missing("project");
    if (!project.branch && !project.tag && !COMMIT_ID.test(ref)) continue;
    const place = names.slice(count).join("/");
    page.go((kind === "tree" ? folderAddress : fileAddress)(path, place, ref) + location.hash, { replace: true });
    return;
  }
  throw page.missing("branch or tag");
}
