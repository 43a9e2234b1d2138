// The SSH keys and the email addresses of a user, for the user and for administrators.

import { removal } from "../dialogs.js";
import { h } from "../dom.js";
import { field, form } from "../forms.js";
import * as graph from "../graph.js";
import { ago, section } from "../parts.js";
import { connectionList, entry } from "../project/lists.js";

const VIEW = "account/keys";

/** The sections. `userId` is that of another user, whom an administrator changes. */
export async function keySections(page, username, { userId = null } = {}) {
  const change = (operation, variables) => graph.mutate(VIEW, operation, { ...variables, userId }, { signal: page.signal });
  const list = async (operation, connection, name, none, item) => {
    const { holder, element, renew } = await connectionList({
      async read(after) {
        const { user } = await graph.request(VIEW, operation, { username, after }, { signal: page.signal });
        if (!user) throw page.missing("user");
        return user;
      },
      connection, name, none, item: (node) => item(node, () => renew()),
    });
    return { holder, element, renew };
  };
  const [keys, emails] = await Promise.all([
    list("SshKeys", "sshKeys", "SSH keys", "No SSH key yet.", (key, renew) => keyEntry(page, key, change, renew)),
    list("Emails", "emails", "Email addresses", "No further address.", (each, renew) => emailEntry(page, each, change, renew)),
  ]);
  return [
    section("SSH keys", null, h("p.hint", null, "With them git fetches and pushes over SSH."), keys.element, addingKey(page, change, keys.renew)),
    section("Email addresses", null, h("p.hint", null, "Commits with these addresses count as yours. The first one is ", h("strong", null, emails.holder.email), "."), emails.element, addingEmail(page, change, emails.renew)),
  ];
}

const keyEntry = (page, { databaseId: id, title, key, fingerprint, createdAt }, change, renew) =>
  entry(
    h("details", null, h("summary", { "data-item": true }, title), h("pre.output", { tabindex: 0, role: "region", "aria-label": `Public key ${title}` }, key)),
    [h("code", null, fingerprint), h("span", null, "added ", ago(createdAt))],
    removal(page, {
      label: `Remove the key ${title}`, title: `Remove the key ${title}?`, text: "It can no longer fetch and push.",
      async act() {
        await change("DeleteSshKey", { id });
        await renew();
        page.announce(`The key ${title} is removed.`);
      },
    }));

const emailEntry = (page, { databaseId: id, email }, change, renew) =>
  entry(h("span", null, email), null, removal(page, {
    label: `Remove ${email}`, title: `Remove ${email}?`, text: "Commits with this address no longer count as those of the account.",
    async act() {
      await change("DeleteEmail", { id });
      await renew();
      page.announce(`${email} is removed.`);
    },
  }));

const addingKey = (page, change, renew) =>
  adding("Add an SSH key", [
    field("title", "Title", { required: true, maxlength: 255, autocomplete: "off" }),
    field("key", "Public key", { kind: "textarea", required: true, hint: "In one line, such as ssh-ed25519 AAAA… comment." }),
  ], "Add the key", page, async (values) => {
    const { sshKey } = await change("AddSshKey", values);
    await renew();
    page.announce(`The key ${sshKey.title} is added.`);
  });

const addingEmail = (page, change, renew) =>
  adding("Add an email address", field("address", "Address", { type: "email", required: true, autocomplete: "off" }), "Add the address", page, async ({ address: text }) => {
    const { email } = await change("AddEmail", { email: text.trim() });
    await renew();
    page.announce(`${email.email} is added.`);
  });

function adding(name, fields, word, page, add) {
  const element = form(name, fields, {
    word, keep: page, fieldOf: { email: "address" },
    async act(values) {
      await add(values);
      element.reset();
    },
  });
  return h("details.menu", null, h("summary", null, name), element);
}
