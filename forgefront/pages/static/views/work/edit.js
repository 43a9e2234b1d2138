// Forms that create an issue or a merge request, and that change the title and the description of one.

import { address } from "../../address.js";
import { h } from "../../dom.js";
import { field, form } from "../../forms.js";
import { GraphError } from "../../graph.js";
import { projectCrumbs } from "../../project/crumbs.js";
import { draft, draftNotice, keepTyped, restore } from "../../repository/drafts.js";
import { textOf } from "../../repository/file_text.js";
import { KINDS } from "../../work/filters.js";
import { markdownField, submitByKey } from "../../work/markdown_field.js";
import { styles } from "../../work/styles.js";
import { triageFields, triageValues } from "../../work/triage.js";

const OPERATIONS = {
  issues: { blank: "NewIssue", record: "Issue", template: "IssueTemplate", create: "CreateIssue", update: "UpdateIssue" },
  merge_requests: { blank: "NewMergeRequest", record: "MergeRequest", template: "MergeRequestTemplate", create: "CreateMergeRequest", update: "UpdateMergeRequest" },
};
const CHANGED = "Somebody else has changed this since you opened it. Nothing was saved, and your text is still here. Save again to replace theirs.";

export async function open(page) {
  await styles();
  const { section, number } = page.where;
  const kind = { ...KINDS[section], operations: OPERATIONS[section] };
  if (number) await change(page, kind, Number(number));
  else await create(page, kind);
}

/** Shows a form under a heading. What was typed at this address before is in it again. */
function show(page, heading, element, stored, crumbs) {
  const typed = stored.read();
  if (typed) {
    restore(element, typed.values);
    element.prepend(draftNotice(stored));
  }
  submitByKey(element);
  page.title(heading, crumbs);
  page.show(h("header.head", null, h("h1", null, heading)), h("div.settings.work-form", null, element));
  element.querySelector("[name=title]").focus({ preventScroll: true });
}

const titleField = (value) => field("title", "Title", { required: true, maxlength: 255, value, autocomplete: "off", autocapitalize: "sentences", spellcheck: "true" });

async function create(page, kind) {
  const { path } = page.where;
  const isIssue = kind.section === "issues";
  const [{ project }, template] = await Promise.all([page.request(kind.operations.blank, { path }), readTemplate(page, kind)]);
  if (!project) throw page.missing("project");
  const can = project.viewerCan;
  if (!(isIssue ? can.createIssue : can.createMergeRequest)) throw page.forbidden(`You may not create ${kind.nouns} in this project.`);
  const mayTriage = isIssue ? can.triageIssues : true;
  const stored = draft(page);
  let forget = () => {};
  const element = form(`New ${kind.noun}`, [
    isIssue ? null : branchFields(page, project),
    titleField(page.query.get("title") ?? ""),
    markdownField(page, path, "description", "Description", { value: page.query.get("description") ?? template }),
    mayTriage ? triageFields(project) : null,
  ], {
    word: `Create the ${kind.noun}`,
    also: h("a.button", { href: address(path, kind.section), onclick: () => forget() }, "Cancel"),
    async act(values) {
      const { title, description, sourceBranch, targetBranch, targetProjectId } = values;
      const input = {
        projectPath: path, title: title.trim(), ...(description.trim() && { description }),
        ...(!isIssue && { sourceBranch: sourceBranch.trim(), targetBranch: targetBranch.trim(), ...(targetProjectId && { targetProjectId: Number(targetProjectId) }) }),
        ...(mayTriage && triaged(values)),
      };
      const { record } = await page.mutate(kind.operations.create, { input });
      forget();
      page.announce(`The ${kind.noun} is created.`);
      page.go(address(record.project?.fullPath ?? path, kind.section, record.iid), { replace: true });
    },
  });
  forget = keepTyped(page, element, stored);
  show(page, `New ${kind.noun}`, element, stored, projectCrumbs(project, [kind.heading, address(path, kind.section)]));
}

/** Only what was chosen: ids of another project would be refused. */
const triaged = (values) => Object.fromEntries(Object.entries(triageValues(values)).filter(([, value]) => (Array.isArray(value) ? value.length : value)));

/** The two branches, and for a fork the project into which they are merged. */
function branchFields(page, project) {
  const { branches, forkedFrom: parent, defaultBranch } = project;
  const names = branches?.nodes.map(({ name }) => name) ?? [];
  const places = [...(project.mergeRequestsEnabled ? [project] : []), ...(parent?.mergeRequestsEnabled ? [parent] : [])];
  const target = page.query.get("target") ?? defaultBranch ?? "";
  return [
    h("div.pair", null,
      field("sourceBranch", "Source branch", { required: true, list: "branches", autocomplete: "off", value: page.query.get("source") ?? "", hint: "The branch with your commits." }),
      field("targetBranch", "Target branch", { required: true, list: "branches", autocomplete: "off", value: target, hint: "The branch that receives them." })),
    h("datalist", { id: "branches" }, names.map((value) => h("option", { value }))),
    parent ? field("targetProjectId", "Into", { kind: "select", options: places.map(({ databaseId, fullPath }) => [String(databaseId), fullPath]), value: String(project.databaseId), hint: "Labels and milestones are those of this project." }) : null,
  ];
}

/** The text of `.forgefront/issue_template.md` or `.forgefront/merge_request_template.md` of the default branch; empty without one. */
async function readTemplate(page, { operations }) {
  try {
    const template = (await page.request(operations.template, { path: page.where.path })).project?.template;
    return template && !template.isBinary ? textOf(template.base64)?.text ?? "" : "";
  } catch (error) {
    if (error.name === "AbortError") throw error;
    return "";
  }
}

async function change(page, kind, iid) {
  const { path } = page.where;
  const read = async () => {
    const { project } = await page.request(kind.operations.record, { path, iid });
    if (!project?.record) throw page.missing(kind.noun);
    return { ...project.record, project };
  };
  const record = await read();
  if (!record.viewerCan.update) throw page.forbidden(`You may not change this ${kind.noun}.`);
  const stored = draft(page);
  // What a person typed is based on the text that the form showed then.
  const base = { title: record.title, description: record.description ?? "", ...stored.read()?.base };
  const back = address(path, kind.section, iid);
  let forget = () => {};
  const element = form(`Edit the ${kind.noun}`, [titleField(record.title), markdownField(page, path, "description", "Description", { value: record.description ?? "" })], {
    word: "Save",
    also: h("a.button", { href: back, onclick: () => forget() }, "Cancel"),
    async act({ title, description }) {
      const now = await read();
      const current = { title: now.title, description: now.description ?? "" };
      if (plain(current.description) !== plain(base.description) || current.title !== base.title) {
        Object.assign(base, current);
        throw new GraphError("CONFLICT", CHANGED);
      }
      const changed = { ...(title.trim() !== now.title && { title: title.trim() }), ...(plain(description) !== plain(current.description) && { description }) };
      if (Object.keys(changed).length) await page.mutate(kind.operations.update, { input: { projectPath: path, iid, ...changed } });
      forget();
      page.announce("Saved.");
      page.go(back, { replace: true });
    },
  });
  forget = keepTyped(page, element, stored, base);
  const crumbs = projectCrumbs(record.project, [kind.heading, address(path, kind.section)], [record.title, back]);
  show(page, `Edit ${kind.noun} ${kind.section === "issues" ? "#" : "!"}${iid}`, element, stored, crumbs);
}

/** A text with the line ends of a text field. */
const plain = (text) => text.replace(/\r\n?/g, "\n");
