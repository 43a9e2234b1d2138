// A person: what the account says, and what the person did and is a member of as far as the viewer may see it.

import { accessTokens } from "../access_tokens.js";
import { address, outside } from "../address.js";
import { h, replace } from "../dom.js";
import { replaceByError } from "../errors.js";
import { ago, avatar, more, section } from "../parts.js";
import { activityRow, buildRow, rows } from "../rows.js";
import * as filters from "../work/filters.js";

export async function open(page) {
  const { name: username } = page.where;
  const { user } = await page.request("User", { username });
  if (!user) throw page.missing("user");
  const isOwn = page.viewer?.username === user.username;
  const tokens = isOwn || page.viewer?.isAdmin ? await accessTokens(page, user.username, isOwn) : null;
  const website = outside(user.websiteUrl);
  page.title(user.name, [[user.username, address("u", user.username)]]);
  page.show(
    h("article", null,
      h("div.head-line", null, h("span.portrait", null, avatar(user)), h("h1", null, user.name)),
      h("div.facts", null,
        h("span", null, `@${user.username}`),
        h("span", null, "member since ", ago(user.createdAt)),
        user.isAdmin ? h("span.tag", null, "administrator") : null,
        user.state === "ACTIVE" ? null : h("span.tag", null, user.state.toLowerCase()),
        website ? h("a", { href: website, rel: "noopener noreferrer" }, user.websiteUrl) : null),
      h("div.stack", null,
        isOwn ? h("div.actions.start", null, h("a.button", { href: address("-", "profile") }, "Edit your account"), user.isAdmin ? h("a.button", { href: address("-", "admin") }, "Administration") : null) : null,
        !isOwn && page.viewer?.isAdmin ? h("div.actions.start", null, h("a.button", { href: address("-", "admin", "users", user.username) }, "Change the account")) : null,
        openWork(user)),
      user.bio ? h("div.card", null, h("p", null, user.bio)) : null,
      h("div.column", null,
        h("div.columns", null,
          h("div.column", null, part(page, user, "Activity", "activities", "MoreActivities", (each) => activityRow(each.project.fullPath, { placed: true })(each), "No activity that you can see.")),
          h("div.column", null,
            part(page, user, "Projects", "projects", "MoreProjects", projectRow, "No projects that you can see."),
            user.groups.nodes.length ? section("Groups", null, groups(user.groups)) : null,
            part(page, user, "Builds", "builds", "MoreBuilds", (each) => buildRow(each.project.fullPath, { brief: true, placed: true })(each), "No builds that you can see."))),
        page.viewer?.isAdmin && user.state === "ACTIVE" ? linkMaker(page, user) : null,
        tokens)));
}

/** Links to the open merge requests and issues that the person created or is assigned to. */
function openWork({ username, name }) {
  const link = ({ section: list, heading }, field, words) =>
    h("a", { href: `${address("-", list)}?${new URLSearchParams({ [field]: username, scope: "all" })}` }, `${heading} ${words}`);
  return h("nav.chips", { "aria-label": `Open work of ${name}` },
    ["merge_requests", "issues"].map((list) => [link(filters.KINDS[list], "author", "created"), link(filters.KINDS[list], "assignee", "assigned")]));
}

/** A section with the first page of a connection of the user, and a button that loads the next one. */
function part(page, user, title, connection, operation, row, none) {
  const { nodes, pageInfo } = user[connection];
  const list = rows(nodes, row, none);
  return section(title, null, list, more(pageInfo, async (after) => {
    const next = (await page.request(operation, { username: user.username, after })).user[connection];
    list.append(...next.nodes.map(row));
    return next.pageInfo;
  }, `More ${title.toLowerCase()}`));
}

const projectRow = ({ fullPath, description, archived, visibility, lastActivityAt }) =>
  h("li.row", { "data-box": true }, h("span"),
    h("p.row-title", null, h("a", { href: address(fullPath), "data-item": true, title: fullPath }, fullPath)),
    h("span.row-side", null, ago(lastActivityAt)),
    h("p.row-meta", null, visibility === "PUBLIC" ? null : h("span.tag", null, visibility.toLowerCase()), archived ? h("span.tag", null, "archived") : null, description ? h("span", null, description) : null));

const groups = ({ nodes, totalCount }) =>
  h("ul.chips", null, nodes.map(({ path, name }) => h("li", null, h("a", { href: address("groups", path), title: path }, name))), totalCount > nodes.length ? h("li", null, `and ${totalCount - nodes.length} more`) : null);

/** For administrators: a button that makes a link with which the user signs in once. */
function linkMaker(page, user) {
  const shown = h("div", { "aria-live": "polite" });
  const make = async (event) => {
    event.target.disabled = true;
    try {
      const { link } = await page.mutate("CreateSignInLink", { id: user.databaseId });
      const field = h("input", { id: "sign-in-link", readonly: true, value: link.url, onfocus: () => field.select() });
      replace(shown,
        h("div.field", null, h("label", { for: "sign-in-link" }, `Link for ${user.name}`), field,
          h("p.hint", null, `It signs in once, until ${new Date(link.expiresAt).toLocaleString()}. It is shown only now, and replaces earlier links.`)));
      field.focus();
    } catch (error) {
      replaceByError(shown)(error);
    } finally {
      event.target.disabled = false;
    }
  };
  return h("div.card.stack", null, h("div.actions.start", null, h("button", { type: "button", id: "make-link", onclick: make }, "Make a sign-in link")), shown);
}
