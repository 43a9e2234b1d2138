// The members of a project: those of its own, whose levels masters change, and those of its group.

import { address } from "../../address.js";
import { removal } from "../../dialogs.js";
import { h, replace } from "../../dom.js";
import { field, form } from "../../forms.js";
import { ago, avatar, more, section } from "../../parts.js";
import { entries, entry, listOf } from "../../project/lists.js";
import { showSection } from "../../settings/page.js";

const LEVELS = [["GUEST", "Guest"], ["REPORTER", "Reporter"], ["DEVELOPER", "Developer"], ["MASTER", "Master"]];
const MEANINGS = "Guests write issues and comments, reporters also read the code, developers push, masters change the project.";
const PAUSE = 200;
/** Milliseconds without a key before user names are looked up. */

const wordOf = (level) => LEVELS.find(([each]) => each === level)?.[1] ?? "Owner";

export async function open(page) {
  const counted = h("span.part-side");
  const count = ({ totalCount: total }) => replace(counted, total === 1 ? "1 member" : `${total} members`);
  const list = await listOf(page, {
    operation: "Members", connection: "members", name: "Members of the project", none: "This project has no members of its own.",
    item: (member, { viewerCan }) => memberEntry(page, member, { may: viewerCan.adminMembers, renew }),
  });
  const { project } = list;
  const { namespace, viewerCan: { adminMembers: may } } = project;
  async function renew() {
    count(await list.renew());
  }
  count(project.members);

  showSection(page, project, "members", [
    section("Members of the project", counted, list.element),
    may ? section("Add a member", null, adding(page, renew)) : null,
    namespace.kind === "GROUP" ? await ofGroup(page, namespace) : owner(namespace),
  ]);
}

function memberEntry(page, { user, accessLevel, createdAt }, { may, renew }) {
  const { path } = page.where;
  const self = user.username === page.viewer.username;
  // The rights of the viewer changed with the membership.
  const show = self ? page.reload : renew;
  return entry(
    [avatar(user), h("a", { href: address("u", user.username), "data-item": true }, user.name)],
    [h("span", null, `@${user.username}`), h("span", null, "member since ", ago(createdAt)), may ? null : h("span.tag", null, wordOf(accessLevel))],
    [
      may ? levelForm(page, user, accessLevel, show) : null,
      may || self ? removal(page, {
        word: self ? "Leave" : "Remove",
        label: self ? "Leave the project" : `Remove ${user.name}`,
        title: self ? "Leave the project?" : `Remove ${user.name}?`,
        text: self ? "You lose the rights of your membership." : `${user.name} loses the rights of the membership. Issues, comments and commits stay.`,
        async act() {
          await page.change("RemoveMember", { path, username: user.username });
          await show();
          page.say(self ? "You left the project." : `${user.name} is no longer a member.`);
        },
      }) : null,
    ]);
}

/** The level is sent by a button: a select that acts on its own would act at each key. */
function levelForm(page, { username, name }, level, show) {
  const id = `level-${username}`;
  const select = field("accessLevel", `Access level of ${name}`, { kind: "select", id, options: LEVELS, value: level, onchange: () => (button.hidden = select.querySelector("select").value === level) });
  select.querySelector("label").classList.add("unseen");
  const element = form(null, select, {
    word: "Change",
    async act({ accessLevel }) {
      await page.change("ChangeLevel", { path: page.where.path, username, level: accessLevel });
      page.say(`${name}: ${wordOf(accessLevel)}.`);
      document.getElementById(id).focus();
      await show();
      document.getElementById(id)?.focus();
    },
  });
  const button = element.querySelector("button");
  button.ariaLabel = `Change the access level of ${name}`;
  button.hidden = true;
  return element;
}

function adding(page, renew) {
  const found = h("datalist", { id: "people" });
  const search = soon(async (text) => {
    const { users } = await page.ask("People", { search: text });
    replace(found, users.nodes.map(({ username, name }) => h("option", { value: username }, name)));
  });
  const username = field("username", "User name", { list: "people", required: true, oninput: (event) => search(event.target.value.trim()) });
  const element = form("Add a member", [username, found, field("accessLevel", "Access level", { kind: "select", options: LEVELS, value: "DEVELOPER", hint: MEANINGS })], {
    word: "Add the member",
    fieldOf: { userId: "username", NOT_FOUND: "username" },
    async act({ username: name, accessLevel: level }) {
      const { member } = await page.change("AddMember", { path: page.where.path, username: name.trim(), level });
      element.reset();
      await renew();
      page.say(`${member.user.name} is a member now.`);
    },
  });
  return element;
}

/** Runs `act` when the person pauses. A failed look-up is none: the name can be typed. */
function soon(act) {
  let timer = null;
  return (text) => {
    clearTimeout(timer);
    if (text) timer = setTimeout(() => act(text).catch(() => {}), PAUSE);
  };
}

const shownEntry = ({ user, accessLevel, createdAt }) =>
  entry([avatar(user), h("a", { href: address("u", user.username), "data-item": true }, user.name)],
    [h("span", null, `@${user.username}`), createdAt ? h("span", null, "member since ", ago(createdAt)) : null, h("span.tag", null, wordOf(accessLevel))], null);

/** The members of the group, if the viewer may see the group. */
async function ofGroup(page, { path, name }) {
  const read = async (after = null) => (await page.ask("GroupMembers", { group: path, after })).group?.members;
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
