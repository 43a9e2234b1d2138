// Labels, milestone and assignee of an issue or a merge request: the fields, and the form that changes them where they are shown.

import { h, replace } from "../dom.js";
import { replaceByError } from "../errors.js";
import { check, field, form } from "../forms.js";
import * as graph from "../graph.js";
import { label } from "../rows.js";

const PREFIX = "label:";
/** The queries that read what the operations update. */
const RECORDS = { UpdateIssue: "Issue", UpdateMergeRequest: "MergeRequest" };

/** The fields. `choices` has the labels, the active milestones and the team of a project; `record` what is set already. */
export function triageFields({ labels, milestones, team }, record = {}) {
  const { labelNodes = [], milestone = null, assignee = null } = record;
  const set = new Set(labelNodes.map(({ name }) => name));
  const all = [...labelNodes, ...(labels?.nodes ?? []).filter(({ name }) => !set.has(name))];
  // What is set stays a choice, even where it is not offered to others.
  const withCurrent = (nodes, current) => (current && !nodes.some(({ databaseId }) => databaseId === current.databaseId) ? [current, ...nodes] : nodes);
  const select = (name, word, nodes, current, labelOf) =>
    field(name, word, { kind: "select", options: [["", "None"], ...withCurrent(nodes, current).map((each) => [String(each.databaseId), labelOf(each)])], value: current ? String(current.databaseId) : "" });
  return [
    h("fieldset.labels", { "data-field": "labels" }, h("legend", null, "Labels"),
      all.length ? h("div.label-choices", null, all.map((each) => {
        const box = check(`${PREFIX}${each.name}`, "", set.has(each.name));
        box.append(label(each));
        return box;
      })) : null,
      field("newLabels", "New labels", { hint: "Separated by commas." }), h("p.wrong", { hidden: true, id: "labels-wrong" })),
    select("milestoneId", "Milestone", milestones?.nodes ?? [], milestone, ({ title }) => title),
    select("assigneeId", "Assignee", team.nodes, assignee, ({ name, username }) => `${name} (${username})`),
  ];
}

/** The fields' values for the graph, from those of a form. */
export const triageValues = (values) => ({
  labels: [...new Set([
    ...Object.entries(values).filter(([name, value]) => name.startsWith(PREFIX) && value).map(([name]) => name.slice(PREFIX.length)),
    ...(values.newLabels ?? "").split(",").map((each) => each.trim()).filter(Boolean),
  ])],
  milestoneId: Number(values.milestoneId) || null,
  assigneeId: Number(values.assigneeId) || null,
});

/**
 * A section that opens to the form. `operation` updates the record, which is found by `path` and `iid`; `record()` returns it as it is
 * now, and `done()` is called after a change.
 */
export function triage(page, { path, iid, operation, record, done }) {
  const slot = h("div");
  const element = h("details.menu.triage", { ontoggle: (event) => event.target.open && load() }, h("summary", null, "Labels, milestone, assignee"), slot);
  async function load() {
    try {
      const { project } = await graph.request("work/edit", "Choices", { path }, { signal: page.signal });
      const before = triageValuesOf(record());
      const fields = form("Labels, milestone, assignee", triageFields(project, record()), {
        word: "Save",
        async act(values) {
          // Others may have changed the other fields since.
          const changed = Object.fromEntries(Object.entries(triageValues(values)).filter(([name, value]) => JSON.stringify(value) !== JSON.stringify(before[name])));
          // The operation replaces all labels, and others may have changed some of them.
          if (changed.labels) {
            const { project: now } = await graph.request("work/edit", RECORDS[operation], { path, iid }, { signal: page.signal });
            changed.labels = merged(before.labels, changed.labels, namesOf(now?.record ?? record()));
          }
          if (Object.keys(changed).length) await graph.mutate("work/edit", operation, { input: { projectPath: path, iid, ...changed } }, { signal: page.signal });
          element.open = false;
          element.querySelector("summary").focus();
          page.announce("Saved.");
          await done();
        },
      });
      replace(slot, h("div.card.settings", null, fields));
      fields.querySelector("input, select")?.focus({ preventScroll: true });
    } catch (error) {
      replaceByError(slot)(error);
    }
  }
  return element;
}

const namesOf = ({ labelNodes }) => labelNodes.map(({ name }) => name);

/** `current`, with what was added and without what was removed between `before` and `after`. */
const merged = (before, after, current) =>
  [...new Set([...current.filter((name) => after.includes(name) || !before.includes(name)), ...after.filter((name) => !before.includes(name))])];

const triageValuesOf = ({ labelNodes, milestone, assignee }) =>
  ({ labels: namesOf({ labelNodes }), milestoneId: milestone?.databaseId ?? null, assigneeId: assignee?.databaseId ?? null });
