// A snippet: its content and its comments, and the form that changes it.

import { address, base } from "../address.js";
import { removal } from "../dialogs.js";
import { answer, doing } from "../discussion.js";
import { h } from "../dom.js";
import { ago, more, person } from "../parts.js";
import { projectCrumbs } from "../project/crumbs.js";
import { save } from "../project/downloads.js";
import { snippetForm } from "../project/snippet_form.js";
import { orderWarning } from "../repository/lines.js";
import { goToNote, note } from "../work/notes.js";

export async function open(page) {
  const { path } = page.where;
  const id = Number(page.where.number);
  const read = async (after = null) => {
    const { project } = await page.request("Snippet", { path, id, after });
    if (!project?.snippet) throw page.missing("snippet");
    return { ...project.snippet, project };
  };
  const snippet = await read();
  const notes = h("div.notes", null, snippet.notes.nodes.map((each) => note(page, each)));

  page.title(snippet.title, projectCrumbs(snippet.project, ["Snippets", address(path, "snippets")]));
  page.show(
    h("article.reading", null,
      h("h1", null, snippet.title),
      h("div.facts", null, h("span.quiet", null, snippet.fileName), person(snippet.author), ago(snippet.createdAt), h("span.tag", null, snippet.visibility.toLowerCase())),
      orderWarning(snippet.content, "This snippet has"),
      h("pre.output", { tabindex: 0 }, snippet.content),
      controls(page, { path, id }, snippet),
      notes,
      more(snippet.notes.pageInfo, async (after) => {
        const next = (await read(after)).notes;
        notes.append(...next.nodes.map((each) => note(page, each)));
        return next.pageInfo;
      }, "Show more comments"),
      snippet.viewerCan.comment ? answer((body) => page.mutate("Comment", { path, id, body }), page.reload, { page }) : null));
  await goToNote();
}

function controls(page, variables, { title, viewerCan, restPath, fileName, ...snippet }) {
  const wrong = h("p.wrong", { role: "alert", hidden: true });
  return h("div.stack", null,
    h("div.actions.start", null,
      doing("button", "Download", wrong, () => save(page, `${base}${restPath}/raw`, fileName)),
      viewerCan.update ? removal(page, {
        word: "Delete", title: "Delete the snippet?", text: "Its comments are deleted too.",
        async act() {
          await page.mutate("DeleteSnippet", variables);
          page.announce("The snippet is deleted.");
          page.go(address(variables.path, "snippets"));
        },
      }) : null),
    wrong,
    viewerCan.update ? h("details", null, h("summary", null, "Edit"), snippetForm("Edit the snippet", { title, fileName, ...snippet }, {
      word: "Save the snippet", keep: page,
      async act(values) {
        await page.mutate("ChangeSnippet", { ...variables, ...values });
        page.announce("The snippet is saved.");
        page.go(location.pathname, { replace: true });
      },
    })) : null);
}
