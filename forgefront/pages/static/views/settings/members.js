// The members of a project: those of its own, whose levels masters change, and those of its group.

import { address } from "../../address.js";
import { h, replace } from "../../dom.js";
import { ago, avatar, more, section } from "../../parts.js";
import { entries, entry, listOf } from "../../project/lists.js";
import { LEVELS, adding, memberEntry, labelOf } from "../../settings/member_parts.js";
import { showSection } from "../../settings/page.js";

const MEANINGS = "Guests write issues and comments, reporters also read the code, developers push, masters change the project.";

export async function open(page) {
  const { path } = page.where;
  const changes = {
    noun: "project", levels: LEVELS,
    change: (username, level) => page.mutate("ChangeLevel", { path, username, level }),
    remove: (username) => page.mutate("RemoveMember", { path, username }),
    add: (username, level) => page.mutate("AddMember", { path, username, level }),
    people: (search) => page.request("People", { search }),
  };
  const counted = h("span.part-side");
  const count = ({ totalCount: total }) => replace(counted, total === 1 ? "1 member" : `${total} members`);
  const list = await listOf(page, {
    operation: "Members", connection: "members", name: "Members of the project", none: "This project has no members of its own.",
    item: (member, { viewerCan }) => memberEntry(page, member, { ...changes, may: viewerCan.adminMembers, renew }),
  });
  const { project } = list;
  const { namespace, viewerCan: { adminMembers: may } } = project;
  async function renew() {
    count(await list.renew());
  }
  count(project.members);

  showSection(page, project, "members", [
    section("Members of the project", counted, list.element),
    may ? section("Add a member", null, adding(page, { ...changes, meanings: MEANINGS, renew })) : null,
    namespace.kind === "GROUP" ? await ofGroup(page, namespace) : owner(namespace),
  ]);
}

const shownEntry = ({ user, accessLevel, createdAt }) =>
  entry([avatar(user), h("a", { href: address("u", user.username), "data-item": true }, user.name)],
    [h("span", null, `@${user.username}`), createdAt ? h("span", null, "member since ", ago(createdAt)) : null, h("span.tag", null, labelOf(accessLevel))], null);

/** The members of the group, if the viewer may see the group. */
async function ofGroup(page, { path, name }) {
  const read = async (after = null) => (await page.request("GroupMembers", { group: path, after })).group?.members;
  const first = await read().catch((error) => {
    if (["NOT_FOUND", "FORBIDDEN"].includes(error.code)) return null;
    throw error;
  });
  if (!first) return null;
  const list = entries(`Members of the group ${name}`, first.nodes, shownEntry, "The group has no members.");
  return section("Members of the group", h("a", { href: address("groups", path) }, name), list.element, more(first.pageInfo, async (after) => {
    const next = await read(after);
    list.add(next.nodes);
    return next.pageInfo;
  }));
}

const owner = ({ path: username, name }) =>
  section("Owner", null, entries("Owner of the project", [{ user: { username, name }, accessLevel: "OWNER" }], shownEntry, "").element);
