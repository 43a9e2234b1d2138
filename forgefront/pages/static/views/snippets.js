// The snippets of a project, and the form that creates one.

import { address } from "../address.js";
import { h } from "../dom.js";
import { ago, person, section } from "../parts.js";
import { showProject } from "../project/head.js";
import { entry, listOf } from "../project/lists.js";
import { snippetForm } from "../project/snippet_form.js";

export async function open(page) {
  const { path } = page.where;
  const { project, element } = await listOf(page, {
    operation: "Snippets", connection: "snippets", name: "Snippets", none: "No snippets yet.", item: (snippet) => snippetEntry(path, snippet),
  });
  showProject(page, project, "snippets", h("div.settings", null,
    section("Snippets", null, element),
    project.viewerCan.createSnippet ? section("Create a snippet", null, snippetForm("Create a snippet", null, {
      word: "Create the snippet", keep: page,
      async act(values) {
        const { snippet } = await page.mutate("CreateSnippet", { path, ...values });
        page.announce("The snippet is created.");
        page.go(address(path, "snippets", snippet.databaseId));
      },
    })) : null));
}

const snippetEntry = (path, { databaseId, title, fileName, visibility, createdAt, author }) =>
  entry(
    [h("a", { href: address(path, "snippets", databaseId), "data-item": true }, title), h("span.tag", null, visibility.toLowerCase())],
    [h("code", null, fileName), person(author), ago(createdAt)], null);
