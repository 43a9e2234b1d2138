// The profile of the viewer, the password, the SSH keys and the email addresses.

import { keySections } from "../../account/keys.js";
import { address } from "../../address.js";
import { h } from "../../dom.js";
import { field, form } from "../../forms.js";
import { section } from "../../parts.js";

export async function open(page) {
  const [{ viewer }, keys] = await Promise.all([page.request("Profile"), keySections(page, page.viewer.username)]);
  page.title("Your account", [[viewer.username, address("u", viewer.username)]]);
  page.show(
    h("header.head", null, h("h1", null, "Your account"), h("a.button", { href: address("u", viewer.username) }, "Profile and access tokens")),
    h("div.settings", null,
      section("Profile", null, profile(page, viewer)),
      viewer.hasPassword ? section("Password", null, password(page)) : null,
      keys));
}

/** The form. Only what is changed is sent: a value of another page stays. */
const profile = (page, viewer) =>
  form("Profile", [
    field("name", "Name", { required: true, maxlength: 255, value: viewer.name, autocomplete: "name", autocapitalize: "words" }),
    field("bio", "About you", { maxlength: 255, value: viewer.bio ?? "", autocomplete: "off", autocapitalize: "sentences" }),
    field("websiteUrl", "Website", { value: viewer.websiteUrl, autocomplete: "url", inputmode: "url" }),
    field("messenger", "Messenger", { maxlength: 255, value: viewer.messenger, autocomplete: "off" }),
    field("professionalProfile", "Professional profile", { maxlength: 255, value: viewer.professionalProfile, autocomplete: "off" }),
    field("microblog", "Microblog", { maxlength: 255, value: viewer.microblog, autocomplete: "off" }),
  ], {
    word: "Save", keep: page,
    async act(values) {
      const changed = Object.entries(values).filter(([name, value]) => value !== (viewer[name] ?? ""));
      await page.mutate("UpdateProfile", { input: Object.fromEntries(changed) });
      Object.assign(viewer, values);
      await page.renewViewer();
      page.announce("Your profile is saved.");
    },
  });

function password(page) {
  const element = form("Password", [
    field("currentPassword", "Current password", { type: "password", required: true, autocomplete: "current-password" }),
    field("password", "New password", { type: "password", required: true, minlength: 8, maxlength: 128, autocomplete: "new-password", hint: "8 to 128 characters." }),
  ], {
    word: "Change the password",
    async act(values) {
      await page.mutate("ChangePassword", values);
      element.reset();
      page.announce("Your password is changed.");
    },
  });
  return element;
}
