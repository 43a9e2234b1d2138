// An issue and its comments.

import { address } from "../address.js";
import { answer, discussion, doing } from "../discussion.js";
import { h, replace } from "../dom.js";
import { markdown } from "../markdown.js";
import { ago, badge, person, section, symbol } from "../parts.js";
import { projectCrumbs } from "../project/crumbs.js";
import { keepFocus, renewal, renewSlowly } from "../renewing.js";
import { label, rows } from "../rows.js";
import { goToNote, note, showNotes } from "../work/notes.js";
import { styles } from "../work/styles.js";
import { triage } from "../work/triage.js";

/** A value that changes when the issue or one of its newest comments changes. */
const standing = ({ updatedAt, newest }) => JSON.stringify([updatedAt, newest]);

export async function open(page) {
  const { path } = page.where;
  const iid = Number(page.where.number);
  const read = async (after = null) => {
    const { project } = await page.request("Issue", { path, iid, after });
    if (!project?.issue) throw page.missing("issue");
    return { ...project.issue, project, mayTriage: project.viewerCan.triageIssues };
  };
  // What is read again when somebody else has changed the issue; what is typed is elsewhere.
  let [issue, conversation, first, answering] = [null, null, null, null];
  const soon = renewal(page, async () => {
    const next = await read();
    if (standing(next) === standing(issue)) return;
    issue = first = next;
    show();
    await conversation.renew();
    page.announce("The issue has changed.");
  });
  await page.follow("Changed", { path }, { event: ({ issueChanged }) => issueChanged.issue.iid === iid && soon(), gap: soon });
  renewSlowly(page, soon);
  [issue] = await Promise.all([read(), styles()]);
  const [head, text] = [h("div"), h("div")];
  const show = () => {
    keepFocus(head, () => replace(head, above(path, issue)));
    keepFocus(text, () => replace(text, below(issue)));
    answering?.renew();
  };
  first = issue;
  conversation = await discussion(async (after) => {
    const { notes } = after || !first ? await read(after) : first;
    first = null;
    return notes;
  }, (each) => note(page, each), showNotes);
  show();

  if (issue.viewerCan.comment || issue.viewerCan.update)
    answering = answerForm(page, { path, iid, isClosed: () => issue.state === "CLOSED", can: issue.viewerCan, done: () => conversation.renew({ isWhole: true }) });
  page.title(`#${iid} ${issue.title}`, projectCrumbs(issue.project, ["Issues", address(path, "issues")]));
  page.show(
    h("article.reading", null, head,
      issue.mayTriage ? triage(page, { path, iid, operation: "UpdateIssue", record: () => issue, done: page.reload }) : null,
      text, conversation.element,
      answering?.element));
  await goToNote(conversation);
}

const above = (path, issue) => [
  h("div.head-line", null, h("h1", null, issue.title, " ", h("span.quiet", null, `#${issue.iid}`)),
    issue.viewerCan.update ? h("div.actions", null, h("a.button", { href: address(path, "issues", issue.iid, "edit") }, "Edit")) : null),
  h("div.facts", null, badge(issue.state), person(issue.author), ago(issue.createdAt),
    issue.assignee ? h("span", null, "assigned to ", person(issue.assignee)) : null,
    issue.milestone ? h("a", { href: address(path, "milestones", issue.milestone.iid) }, issue.milestone.title) : null,
    issue.labelNodes.map(label)),
];

const below = (issue) => [
  h("div.card", null, issue.descriptionHtml ? markdown(issue.descriptionHtml) : h("p.quiet", null, "No description.")),
  issue.mergeRequests.nodes.length ? h("div.notes", null, section("Merge requests that close this issue", null, rows(issue.mergeRequests.nodes, closing, ""))) : null,
];

const closing = ({ iid, title, state, project, headCommit }) =>
  h("li.row", { "data-box": true },
    symbol(state === "MERGED" || state === "CLOSED" ? state : headCommit?.rollup?.state ?? "NONE"),
    h("p.row-title", null, h("a", { href: address(project.fullPath, "merge_requests", iid), "data-item": true }, title)),
    h("span.row-side", null, `!${iid}`));

/**
 * The `element` with the comment form and the button that closes or reopens the issue, and sends what was typed before. `renew()` shows
 * which of the two the button does.
 */
function answerForm(page, { path, iid, isClosed, can, done }) {
  const send = (body) => page.mutate("Comment", { path, iid, body });
  let button = null;
  const turn = (textOf, wrong) => doing("button", null, wrong, async () => {
    const operation = isClosed() ? "Reopen" : "Close";
    if (textOf().trim()) {
      await send(textOf());
      textOf.sent();
    }
    await page.mutate(operation, { path, iid });
    await page.reload();
  });
  const element = answer(send, done, { page, comments: can.comment, also: (textOf, wrong) => (button = can.update ? turn(textOf, wrong) : null) });
  const renew = () => button && replace(button, isClosed() ? "Reopen" : "Close the issue");
  renew();
  return { element, renew };
}
