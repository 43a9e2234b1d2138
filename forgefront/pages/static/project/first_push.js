// What to do with a project without commits: create a file here, or push.

import { h } from "../dom.js";
import { copyButton, section } from "../parts.js";
import { newFileAddress } from "../repository/addresses.js";

/** Branches whose names a shell reads as they are. */
const PLAIN = /^[\w./-]+$/;

/** `project` has the fields of the fragment `head`. */
export function firstPush({ fullPath, defaultBranch, httpUrlToRepo, viewerCan }) {
  if (!viewerCan.pushCode) return h("div.empty", null, h("h2", null, "No commits yet"), h("p", null, "Developers of the project push the first one."));
  const branch = PLAIN.test(defaultBranch ?? "") ? defaultBranch : "main";
  return h("section.first-push.stack", { "aria-label": "The first commit" },
    h("div.empty", null, h("h2", null, "No commits yet"), h("p", null, "Create a file here, or push with git. The password is a private token."),
      h("p", null, h("a.button", { href: newFileAddress(fullPath, "", branch) }, "Create the first file"))),
    commands("Begin a new repository", `git clone ${httpUrlToRepo}`, `cd ${fullPath.split("/").at(-1)}`, `git switch -c ${branch}`, "echo '# A title' > README.md", "git add README.md", "git commit -m 'Add a README'", `git push -u origin ${branch}`),
    commands("Push an existing repository", `git remote add origin ${httpUrlToRepo}`, `git push -u origin HEAD:${branch}`));
}

function commands(title, ...lines) {
  const code = h("code", null, lines.join("\n"));
  return section(title, copyButton(code, `Copy: ${title}`), h("pre.output", { tabindex: 0 }, code));
}
