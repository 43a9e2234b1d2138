// The labels of a project with the numbers of their issues, and the forms that create and change them.

import { address } from "../../address.js";
import { removal } from "../../dialogs.js";
import { h, replace } from "../../dom.js";
import { field, form } from "../../forms.js";
import { showProject } from "../../project/head.js";
import { entry, listOf } from "../../project/lists.js";
import { label } from "../../rows.js";
import { styles } from "../../work/styles.js";

const COLOR = "#428bca";

export async function open(page) {
  await styles();
  const { path } = page.where;
  const counted = h("p.quiet");
  const count = ({ totalCount: total }) => replace(counted, total === 1 ? "1 label" : `${total} labels`);
  const { project, element, renew: renewList } = await listOf(page, {
    operation: "Labels", connection: "labels", name: "Labels", none: "No label yet.", item: (each, { can }) => item(page, each, can.adminLabels, () => renew()),
  });
  const renew = async () => count(await renewList());
  count(project.labels);
  showProject(page, project, "issues", [
    h("h2.unseen", null, "Labels"),
    h("div.actions.spread.list-head", null, counted, h("a.button", { href: address(path, "milestones") }, "Milestones")),
    element,
    project.can.adminLabels ? h("details.menu.triage", { open: !project.labels.totalCount }, h("summary", null, "New label"), h("div.card.settings", null, creating(page, path, renew))) : null,
  ]);
}

/** `id` distinguishes the fields of several forms. */
const fieldsOf = ({ name = "", color = COLOR, description = "" }, id) => [
  field("name", "Name", { required: true, maxlength: 255, value: name, id: `name-${id}`, autocomplete: "off", hint: "Without &, ? and commas." }),
  field("color", "Color", { type: "color", value: color.toLowerCase(), id: `color-${id}` }),
  field("description", "Description", { value: description ?? "", id: `description-${id}`, autocomplete: "off" }),
];

function item(page, each, mayChange, renew) {
  const { id, name, color, description, openIssuesCount, closedIssuesCount } = each;
  const issues = (state, count) => {
    const query = new URLSearchParams({ label: name, ...(state === "closed" && { state }) });
    return count === null ? null : h("a", { href: `${address(page.where.path, "issues")}?${query}`, "aria-label": `${count} ${state} issues with the label ${name}` }, `${count} ${state}`);
  };
  const changing = () => form(`Change ${name}`, fieldsOf(each, id), {
    word: "Save", keep: page, fieldOf: { newName: "name" },
    async act(values) {
      const changed = {
        ...(values.name.trim() !== name && { newName: values.name }), ...(values.color !== color.toLowerCase() && { color: values.color }),
        ...(values.description !== (description ?? "") && { description: values.description || null }),
      };
      if (Object.keys(changed).length) await page.mutate("UpdateLabel", { input: { id, ...changed } });
      await renew();
      page.announce("The label is changed.");
    },
  });
  return entry(
    mayChange ? h("details", null, h("summary", { "data-item": true }, label(each)), changing()) : label(each),
    [description ? h("span", null, description) : null, issues("open", openIssuesCount), issues("closed", closedIssuesCount)],
    mayChange ? removal(page, {
      word: "Delete", label: `Delete the label ${name}`, title: `Delete the label ${name}?`, text: "It is removed from every issue and merge request.",
      async act() {
        await page.mutate("DeleteLabel", { id });
        await renew();
        page.announce(`The label ${name} is deleted.`);
      },
    }) : null);
}

function creating(page, path, renew) {
  const element = form("New label", fieldsOf({}, "new"), {
    word: "Create the label", keep: page,
    async act({ name, color, description }) {
      const { label: made } = await page.mutate("CreateLabel", { input: { projectPath: path, name, color, description: description || null } });
      element.reset();
      await renew();
      page.announce(`The label ${made.name} is created.`);
    },
  });
  return element;
}
