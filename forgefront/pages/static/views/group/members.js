// The members of a group, whose levels owners change.

import { showGroup } from "../../group/head.js";
import { h, replace } from "../../dom.js";
import { section } from "../../parts.js";
import { connectionList } from "../../project/lists.js";
import { GROUP_LEVELS, adding, memberEntry } from "../../settings/member_parts.js";

const MEANINGS = "Levels hold in all projects of the group. Masters also create projects in it, owners change the group and its members.";

export async function open(page) {
  const { name: path } = page.where;
  const changes = {
    noun: "group", levels: GROUP_LEVELS,
    change: (username, level) => page.mutate("ChangeGroupLevel", { path, username, level }),
    remove: (username) => page.mutate("RemoveGroupMember", { path, username }),
    add: (username, level) => page.mutate("AddGroupMember", { path, username, level }),
    people: (search) => page.request("People", { search }),
  };
  const counted = h("span.part-side");
  const count = ({ totalCount: total }) => replace(counted, total === 1 ? "1 member" : `${total} members`);
  const list = await connectionList({
    async read(after) {
      const { group } = await page.request("GroupMembersPage", { path, after });
      if (!group) throw page.missing("group");
      return group;
    },
    connection: "members", name: "Members of the group", none: "The group has no members.",
    item: (member, { viewerCan }) => memberEntry(page, member, { ...changes, may: viewerCan.adminMembers, renew }),
  });
  const { holder: group } = list;
  async function renew() {
    count(await list.renew());
  }
  count(group.members);
  showGroup(page, group, "members", h("div.settings", null,
    section("Members of the group", counted, list.element),
    group.viewerCan.adminMembers ? section("Add a member", null, adding(page, { ...changes, meanings: MEANINGS, renew })) : null));
}
