// An issue and its comments.

import { address } from "../address.js";
import { h } from "../dom.js";
import { markdown } from "../markdown.js";
import { ago, badge, more, person, section, symbol } from "../parts.js";
import { label, rows } from "../rows.js";

export async function open(page) {
  const { path } = page.where;
  const iid = Number(page.where.number);
  const read = async (after = null) => {
    const { project } = await page.ask("Issue", { path, iid, after });
    if (!project?.issue) throw page.missing("issue");
    return project.issue;
  };
  const issue = await read();
  const closed = issue.state === "CLOSED";
  const notes = h("div.notes", null, issue.notes.nodes.map(note));

  page.title(`#${iid} ${issue.title}`, [[path, address(path)], ["issues", address(path, "issues")]]);
  page.show(
    h("article.reading", null,
      h("h1", null, issue.title, " ", h("span.quiet", null, `#${iid}`)),
      h("div.facts", null, badge(issue.state), person(issue.author), ago(issue.createdAt),
        issue.assignee ? h("span", null, "assigned to ", person(issue.assignee)) : null,
        issue.milestone ? h("a", { href: address(path, "milestones", issue.milestone.iid) }, issue.milestone.title) : null,
        issue.labelNodes.map(label)),
      h("div.card", null, issue.descriptionHtml ? markdown(issue.descriptionHtml) : h("p.quiet", null, "No description.")),
      issue.mergeRequests.nodes.length ? h("div.notes", null, section("Merge requests that close this issue", null, rows(issue.mergeRequests.nodes, closing, ""))) : null,
      notes,
      more(issue.notes.pageInfo, async (after) => {
        const next = (await read(after)).notes;
        notes.append(...next.nodes.map(note));
        return next.pageInfo;
      }, "More notes"),
      issue.viewerCan.comment || issue.viewerCan.update ? answering(page, { path, iid, closed, can: issue.viewerCan }) : null));
}

export const note = ({ body, bodyHtml, system, author, createdAt }) =>
  system
    ? h("div.note.system", null, person(author), h("span", null, body), ago(createdAt))
    : h("article.note.card", null, h("header", null, person(author), ago(createdAt)), markdown(bodyHtml));

const closing = ({ iid, title, state, project, headCommit }) =>
  h("li.row", { "data-box": true },
    symbol(state === "MERGED" || state === "CLOSED" ? state : headCommit?.rollup.state ?? "NONE"),
    h("p.row-title", null, h("a", { href: address(project.fullPath, "merge_requests", iid), "data-item": true }, title)),
    h("span.row-side", null, `!${iid}`));

/** The comment form, with the button that closes or reopens the issue. */
function answering(page, { path, iid, closed, can }) {
  const wrong = h("p.wrong", { role: "alert", hidden: true });
  const body = h("textarea", { name: "body", id: "comment", "aria-label": "Your comment", placeholder: "Write a comment" });
  const run = async (...steps) => {
    wrong.hidden = true;
    try {
      for (const [operation, variables] of steps) await page.change(operation, { path, iid, ...variables });
      page.reload();
    } catch (error) {
      if (error.name === "AbortError") return;
      wrong.textContent = error.message;
      wrong.hidden = false;
    }
  };
  const said = () => (body.value.trim() ? [["Comment", { body: body.value }]] : []);
  return h("form.stack", { onsubmit: (event) => (event.preventDefault(), said().length && run(...said())) },
    can.comment ? body : null, wrong,
    h("div.actions", null,
      can.update ? h("button", { type: "button", onclick: () => run(...said(), [closed ? "Reopen" : "Close", {}]) }, closed ? "Reopen" : "Close the issue") : null,
      can.comment ? h("button.primary", null, "Comment") : null));
}
