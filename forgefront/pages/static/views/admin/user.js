// A user, for administrators: the account, its rights, keys and addresses.

import { keySections } from "../../account/keys.js";
import { adminAddress, requireAdmin, showAdmin } from "../../admin/page.js";
import { address } from "../../address.js";
import { removal } from "../../dialogs.js";
import { doing } from "../../discussion.js";
import { h } from "../../dom.js";
import { check, field, form } from "../../forms.js";
import { ago, section } from "../../parts.js";

export async function open(page) {
  requireAdmin(page);
  const { user } = await page.request("User", { username: page.where.name });
  if (!user) throw page.missing("user");
  const keys = await keySections(page, user.username, { userId: user.databaseId });
  showAdmin(page, "users", [
    h("div.stack", null, facts(user), actions(page, user)),
    section("Account", null, account(page, user)),
    keys,
  ], { heading: user.name, above: [["Users", adminAddress("users")]] });
}

const facts = ({ username, state, isAdmin, confirmed, blockedByDirectory, provider, hasPassword, createdAt, currentSignInAt }) =>
  h("p.facts", null,
    h("a", { href: address("u", username) }, `@${username}`),
    isAdmin ? h("span.tag", null, "administrator") : null,
    state === "BLOCKED" ? h("span.tag", null, blockedByDirectory ? "blocked by the directory" : "blocked") : null,
    confirmed ? null : h("span.tag", null, "not confirmed"),
    provider ? h("span", null, `from ${provider}`) : null,
    h("span", null, hasPassword ? "with a password" : "without a password"),
    h("span", null, "created ", ago(createdAt)),
    h("span", null, ...(currentSignInAt ? ["signed in ", ago(currentSignInAt)] : ["never signed in with a password"])));

/** Blocks, confirms and deletes. Nobody does so with themselves. */
function actions(page, { databaseId: id, username, name, state, confirmed, blockedByDirectory }) {
  const wrong = h("p.wrong", { role: "alert", hidden: true });
  const act = (word, operation, variables, said) => doing("button", word, wrong, async () => {
    await page.mutate(operation, variables);
    page.announce(said);
    await page.reload();
  });
  const self = username === page.viewer.username;
  return [h("div.actions.start", null,
    confirmed ? null : act("Confirm", "UpdateUser", { input: { databaseId: id, confirmed: true } }, "The email address is confirmed."),
    self || blockedByDirectory ? null : state === "BLOCKED"
      ? act("Unblock", "UnblockUser", { id }, `${name} is no longer blocked.`)
      : act("Block", "BlockUser", { id }, `${name} is blocked.`),
    self ? null : removal(page, {
      word: "Delete", label: "Delete the user", title: `Delete ${name}?`, typed: username,
      text: "The personal projects with their repositories are deleted too. Issues, comments and commits stay, in the name of the ghost user.",
      async act() {
        await page.mutate("DeleteUser", { id });
        page.announce("The user is deleted.");
        page.go(adminAddress("users"));
      },
    })), wrong];
}

/** The form. Only what is changed is sent: a value of somebody else's change stays. */
function account(page, user) {
  const before = {
    username: user.username, name: user.name, email: user.email, websiteUrl: user.websiteUrl, bio: user.bio ?? "",
    projectsLimit: String(user.projectsLimit), canCreateGroup: user.canCreateGroup, admin: user.isAdmin,
  };
  const self = user.username === page.viewer.username;
  return form("Account", [
    field("username", "User name", { required: true, maxlength: 255, value: before.username, autocomplete: "off", hint: "The addresses of personal projects change with it." }),
    field("name", "Name", { required: true, maxlength: 255, value: before.name, autocomplete: "off", autocapitalize: "words" }),
    field("email", "Email", { type: "email", required: true, value: before.email, autocomplete: "off" }),
    field("password", "New password", { type: "password", autocomplete: "new-password", hint: "8 to 128 characters. Leave it empty to keep the current one." }),
    field("websiteUrl", "Website", { value: before.websiteUrl, autocomplete: "off", inputmode: "url" }),
    field("bio", "About", { value: before.bio, maxlength: 255, autocomplete: "off" }),
    field("projectsLimit", "Personal projects", { type: "number", min: 0, required: true, value: before.projectsLimit, hint: "Maximum number." }),
    check("canCreateGroup", "May create groups", before.canCreateGroup),
    self ? null : check("admin", "Is an administrator", before.admin),
  ], {
    word: "Save", keep: page,
    async act({ password, ...values }) {
      const changed = Object.fromEntries(Object.entries(values).filter(([name, value]) => value !== before[name]));
      if (changed.projectsLimit) changed.projectsLimit = Number(changed.projectsLimit);
      if (password) changed.password = password;
      if (Object.keys(changed).length) {
        const { user: now } = await page.mutate("UpdateUser", { input: { databaseId: user.databaseId, ...changed } });
        page.announce("Saved.");
        page.go(adminAddress("users", now.username), { replace: true });
      }
    },
  });
}
