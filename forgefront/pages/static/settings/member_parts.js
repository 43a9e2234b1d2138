// What the pages of members share: the entry of a member with the form of its level, and the form that adds one.

import { address } from "../address.js";
import { removal } from "../dialogs.js";
import { h, replace } from "../dom.js";
import { field, form } from "../forms.js";
import { ago, avatar } from "../parts.js";
import { entry } from "../project/lists.js";

export const LEVELS = [["GUEST", "Guest"], ["REPORTER", "Reporter"], ["DEVELOPER", "Developer"], ["MASTER", "Master"]];
export const GROUP_LEVELS = [...LEVELS, ["OWNER", "Owner"]];
/** Milliseconds without a key before user names are looked up. */
const PAUSE = 200;

export const labelOf = (level) => GROUP_LEVELS.find(([each]) => each === level)[1];

/**
 * The entry of a member. `may`: the viewer changes members. `change(username, level)` and `remove(username)` do so; `noun` is "project" or
 * "group", and `levels` are those to choose from.
 */
export function memberEntry(page, { user, accessLevel, createdAt }, { may, noun, levels, change, remove, renew }) {
  const self = user.username === page.viewer.username;
  // The rights of the viewer changed with the membership.
  const show = self ? page.reload : renew;
  return entry(
    [avatar(user), h("a", { href: address("u", user.username), "data-item": true }, user.name)],
    [h("span", null, `@${user.username}`), h("span", null, "member since ", ago(createdAt)), may ? null : h("span.tag", null, labelOf(accessLevel))],
    [
      may ? levelForm(page, user, accessLevel, { levels, change, show }) : null,
      may || self ? removal(page, {
        word: self ? "Leave" : "Remove",
        label: self ? `Leave the ${noun}` : `Remove ${user.name}`,
        title: self ? `Leave the ${noun}?` : `Remove ${user.name}?`,
        text: self ? "You lose the rights of your membership." : `${user.name} loses the rights of the membership. Issues, comments and commits stay.`,
        async act() {
          await remove(user.username);
          await show();
          page.announce(self ? `You left the ${noun}.` : `${user.name} is no longer a member.`);
        },
      }) : null,
    ]);
}

/** The level is sent by a button: a select that acts on its own would act at each key. */
function levelForm(page, { username, name }, level, { levels, change, show }) {
  const id = `level-${username}`;
  const select = field("accessLevel", `Access level of ${name}`, { kind: "select", id, options: levels, value: level, onchange: () => (button.hidden = select.querySelector("select").value === level) });
  select.querySelector("label").classList.add("unseen");
  const element = form(null, select, {
    word: "Change",
    async act({ accessLevel }) {
      await change(username, accessLevel);
      page.announce(`${name}: ${labelOf(accessLevel)}.`);
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

/** The form that adds a member. `people(search)` returns users, `add(username, level)` the payload with the member. */
export function adding(page, { levels, meanings, people, add, renew }) {
  const found = h("datalist", { id: "people" });
  const search = soon(async (text) => {
    const { users } = await people(text);
    replace(found, users.nodes.map(({ username, name }) => h("option", { value: username }, name)));
  });
  const username = field("username", "User name", { list: "people", required: true, oninput: (event) => search(event.target.value.trim()) });
  const element = form("Add a member", [username, found, field("accessLevel", "Access level", { kind: "select", options: levels, value: "DEVELOPER", hint: meanings })], {
    word: "Add the member",
    fieldOf: { userId: "username", NOT_FOUND: "username" },
    async act({ username: name, accessLevel: level }) {
      const { member } = await add(name.trim(), level);
      element.reset();
      await renew();
      page.announce(`${member.user.name} is a member now.`);
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
