// What a list of milestones and the page of one share: the due date, the progress, the form, and the buttons that change a milestone.

import { removal } from "../dialogs.js";
import { doing } from "../discussion.js";
import { h } from "../dom.js";
import { field } from "../forms.js";
import * as graph from "../graph.js";
import { markdownField } from "./markdown_field.js";

/** The due date in words; null without one. */
export const dueWords = ({ dueDate }) => (dueDate ? new Date(`${dueDate}T00:00`).toLocaleDateString(undefined, { dateStyle: "long" }) : null);

/** A mark for a milestone that is overdue. Due on a day means until its end, where the reader is. */
export const overdue = ({ dueDate, state }) =>
  dueDate && state !== "CLOSED" && new Date(`${dueDate}T23:59:59`) < new Date() ? h("span.badge", { "data-state": "FAILED" }, "overdue") : null;

/** How many issues are closed, as a bar and in words; null if the viewer cannot see issues. */
export function progress({ percentComplete, openIssuesCount, closedIssuesCount }) {
  if (percentComplete === null) return [];
  const filled = h("span", { "data-state": "SUCCESS" });
  filled.style.width = `${percentComplete}%`;
  return [h("span.bar", { "aria-hidden": "true" }, filled), h("span", null, `${closedIssuesCount} of ${closedIssuesCount + openIssuesCount} issues are closed`)];
}

/** The fields of a milestone, for a new one and for changes. */
export const fieldsOf = (page, { title = "", description = "", dueDate = "" } = {}) => [
  field("title", "Title", { required: true, maxlength: 255, value: title, autocomplete: "off", autocapitalize: "sentences", spellcheck: "true" }),
  field("dueDate", "Due date", { type: "date", value: dueDate ?? "" }),
  markdownField(page, page.where.path, "description", "Description", { value: description }),
];

/** The values of the fields for the graph. */
export const valuesOf = ({ title, description, dueDate }) => ({ title: title.trim(), description, dueDate: dueDate || null });

/** The buttons that close or activate a milestone, and that delete it. `done(isDeleted)` is called after a change. */
export function changing(page, { id, title, state }, wrong, done) {
  const isClosed = state === "CLOSED";
  const change = (operation, variables) => graph.mutate("milestone", operation, variables, { signal: page.signal });
  const turn = doing("button", isClosed ? "Activate" : "Close", wrong, async () => {
    await change("UpdateMilestone", { input: { id, stateEvent: isClosed ? "ACTIVATE" : "CLOSE" } });
    page.announce(isClosed ? "The milestone is active again." : "The milestone is closed.");
    await done(false);
  });
  turn.ariaLabel = `${isClosed ? "Activate" : "Close"} ${title}`;
  return [turn, removal(page, {
    word: "Delete", label: `Delete ${title}`, title: `Delete ${title}?`, text: "Its issues and merge requests stay, without a milestone.",
    async act() {
      await change("DeleteMilestone", { id });
      page.announce("The milestone is deleted.");
      await done(true);
    },
  })];
}
