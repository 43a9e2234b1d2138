// The import of a project's repository: how far it is, and why it failed.

import { h, replace } from "../dom.js";
import { field, form } from "../forms.js";
import * as graph from "../graph.js";
import { ago, badge } from "../parts.js";
import { watch } from "../renewing.js";

/** Milliseconds between two reads of the state: imports have no events. */
const POLL = 1500;

/** The element that shows an import until it ends. When it has succeeded, the page is opened again. */
export async function importProgress(page, path) {
  const element = h("section.part.import", { "aria-label": "Import of the repository" });
  let failed = false;
  const look = async () => {
    const { project } = await graph.request("import", "Import", { path }, { signal: page.signal });
    const found = project?.repositoryImport;
    if (!found || found.state === "FINISHED") {
      page.announce("The repository is imported.");
      page.reload();
      return;
    }
    failed = found.state === "FAILED";
    if (failed) page.announce("The import failed.");
    replace(element, failed ? failure(page, path, found, look) : progress(found));
  };
  await look();
  // The form of a failed import is not replaced while somebody fills it.
  watch(page, POLL, async () => failed || look());
  return element;
}

function progress({ state, url, phase, processed, total, createdAt }) {
  return h("div.facts", null,
    badge(state === "QUEUED" ? "PENDING" : "RUNNING", state === "QUEUED" ? "import waiting" : "importing"), h("code.address", null, url),
    total ? h("progress", { max: total, value: processed, "aria-label": "Import" }) : null,
    phase ? h("span", null, total ? `${phase}, ${processed} of ${total}` : phase) : null, h("span", null, "requested ", ago(createdAt)));
}

const failure = (page, path, { url, error, createdAt }, look) => [
  h("div.facts", null, badge("FAILED", "import failed"), h("code.address", null, url), h("span", null, "requested ", ago(createdAt))),
  h("p.wrong", { role: "alert" }, error),
  form("Import again", field("importUrl", "URL", { required: true, inputmode: "url", value: url, hint: "http or https. Add the user name and the password again, if it needs them." }), {
    word: "Import again",
    async act({ importUrl }) {
      await graph.mutate("import", "ImportAgain", { path, importUrl: importUrl.trim() }, { signal: page.signal });
      await look();
    },
  }),
];
