// An issue and its comments.

import { address } from "../address.js";
import { answer, doing } from "../discussion.js";
import { h } from "../dom.js";
import { markdown } from "../markdown.js";
import { ago, badge, more, person, section, symbol } from "../parts.js";
import { label, rows } from "../rows.js";
import { styles } from "../work/styles.js";
import { triage } from "../work/triage.js";

export async function open(page) {
  const { path } = page.where;
  const iid = Number(page.where.number);
  const read = async (after = null) => {
    const { project } = await page.ask("Issue", { path, iid, after });
    if (!project?.issue) throw page.missing("issue");
    return { ...project.issue, mayTriage: project.viewerCan.triageIssues };
  };
  const [issue] = await Promise.all([read(), styles()]);
  const closed = issue.state === "CLOSED";
  const notes = h("div.notes", null, issue.notes.nodes.map((each) => note(each)));

  page.title(`#${iid} ${issue.title}`, [[path, address(path)], ["issues", address(path, "issues")]]);
  page.show(
    h("article.reading", null,
      h("div.head-line", null, h("h1", null, issue.title, " ", h("span.quiet", null, `#${iid}`)),
        issue.viewerCan.update ? h("div.actions", null, h("a.button", { href: address(path, "issues", iid, "edit") }, "Edit")) : null),
      h("div.facts", null, badge(issue.state), person(issue.author), ago(issue.createdAt),
        issue.assignee ? h("span", null, "assigned to ", person(issue.assignee)) : null,
        issue.milestone ? h("a", { href: address(path, "milestones", issue.milestone.iid) }, issue.milestone.title) : null,
        issue.labelNodes.map(label)),
      issue.mayTriage ? triage(page, { path, iid, operation: "UpdateIssue", record: () => issue, done: page.reload }) : null,
      h("div.card", null, issue.descriptionHtml ? markdown(issue.descriptionHtml) : h("p.quiet", null, "No description.")),
      issue.mergeRequests.nodes.length ? h("div.notes", null, section("Merge requests that close this issue", null, rows(issue.mergeRequests.nodes, closing, ""))) : null,
      notes,
      more(issue.notes.pageInfo, async (after) => {
        const next = (await read(after)).notes;
        notes.append(...next.nodes.map((each) => note(each)));
        return next.pageInfo;
      }, "More notes"),
      issue.viewerCan.comment || issue.viewerCan.update ? answering(page, { path, iid, closed, can: issue.viewerCan }) : null));
}

export const note = ({ body, bodyHtml, system, author, createdAt }, isNew = false) =>
  system
    ? h("div.note.system", null, person(author), h("span", null, body), ago(createdAt))
    : h("article.note.card", null, h("header", null, person(author), ago(createdAt), isNew ? h("span.tag.new-tag", null, "new") : null), markdown(bodyHtml));

const closing = ({ iid, title, state, project, headCommit }) =>
  h("li.row", { "data-box": true },
    symbol(state === "MERGED" || state === "CLOSED" ? state : headCommit?.rollup.state ?? "NONE"),
    h("p.row-title", null, h("a", { href: address(project.fullPath, "merge_requests", iid), "data-item": true }, title)),
    h("span.row-side", null, `!${iid}`));

/** The comment form, with the button that closes or reopens the issue, and sends what was typed before. */
function answering(page, { path, iid, closed, can }) {
  const send = (body) => page.change("Comment", { path, iid, body });
  const turn = (textOf, wrong) => doing("button", closed ? "Reopen" : "Close the issue", wrong, async () => {
    if (textOf().trim()) {
      await send(textOf());
      textOf.sent();
    }
    await page.change(closed ? "Reopen" : "Close", { path, iid });
    await page.reload();
  });
  return answer(send, page.reload, { page, comments: can.comment, also: (textOf, wrong) => (can.update ? turn(textOf, wrong) : null) });
}
