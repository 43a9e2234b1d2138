// The settings of the instance.

import { requireAdmin, showAdmin } from "../../admin/page.js";
import { h } from "../../dom.js";
import { check, field, form } from "../../forms.js";
import { ago, section } from "../../parts.js";
import { VISIBILITIES } from "../../project/visibilities.js";

const PROTECTIONS = [["NONE", "None: developers push, force-push and delete"], ["PARTIAL", "Partial: developers push, but do not force-push or delete"], ["FULL", "Full: only masters push"]];
const LEVEL = "level:";
const NUMBERS = ["sessionExpireDelay", "defaultProjectsLimit", "maxAttachmentSize"];

export async function open(page) {
  requireAdmin(page);
  const { settings } = await page.request("Settings");
  const before = shown(settings);
  const number = (name, word, hint) => field(name, word, { type: "number", min: 0, required: true, value: before[name], hint });
  const group = (title, ...fields) => h("fieldset", null, h("legend", null, title), fields);
  showAdmin(page, "settings", section("Settings", h("span.part-side", null, "changed ", ago(settings.updatedAt)), form("Settings of the instance", [
    group("Sign-in",
      check("signinEnabled", "Users sign in with a password", before.signinEnabled),
      check("signupEnabled", "Anyone may create an account", before.signupEnabled),
      field("restrictedSignupDomains", "Domains of email addresses", { value: before.restrictedSignupDomains, autocomplete: "off", hint: "Of new users; separated by commas, * is a wildcard. Empty for all." }),
      number("sessionExpireDelay", "Session length in minutes", "0: sessions do not end."),
      field("signInText", "Text of the sign-in page", { kind: "textarea", value: before.signInText }),
      field("homePageUrl", "Home page", { inputmode: "url", value: before.homePageUrl, autocomplete: "off", hint: "Visitors who are not signed in are sent there." }),
      field("afterSignOutPath", "Page after signing out", { inputmode: "url", value: before.afterSignOutPath, autocomplete: "off" })),
    group("New projects and snippets",
      number("defaultProjectsLimit", "Personal projects of a new user", "Maximum number."),
      field("defaultProjectVisibility", "Visibility of new projects", { kind: "select", options: VISIBILITIES, value: before.defaultProjectVisibility }),
      field("defaultSnippetVisibility", "Visibility of new snippets", { kind: "select", options: VISIBILITIES, value: before.defaultSnippetVisibility }),
      field("defaultBranchProtection", "Protection of the first branch", { kind: "select", options: PROTECTIONS, value: before.defaultBranchProtection })),
    h("fieldset", { "data-field": "restrictedVisibilityLevels" }, h("legend", null, "Only administrators use"),
      VISIBILITIES.map(([level, word]) => check(`${LEVEL}${level}`, word, before[`${LEVEL}${level}`])), h("p.wrong", { hidden: true, id: "levels-wrong" })),
    group("Other",
      number("maxAttachmentSize", "Maximum size of an attached file in megabytes", "Larger files are rejected."),
      check("avatarServiceEnabled", "Show avatars", before.avatarServiceEnabled),
      check("microblogSharingEnabled", "Offer sharing on a microblog", before.microblogSharingEnabled),
      check("userOauthApplications", "Users may register OAuth applications", before.userOauthApplications)),
  ], {
    word: "Save the settings", keep: page,
    async act(values) {
      // Only what is changed is sent: a value of somebody else's change stays.
      const changed = Object.entries(values).filter(([name, value]) => value !== before[name]);
      if (changed.length) await page.mutate("UpdateSettings", { input: sent(values, changed) });
      Object.assign(before, values);
      page.announce("The settings are saved.");
    },
  })));
}

/** The settings as values of the form. */
const shown = ({ restrictedSignupDomains: domains, restrictedVisibilityLevels: levels, updatedAt, ...others }) => ({
  ...Object.fromEntries(Object.entries(others).map(([name, value]) => [name, typeof value === "boolean" ? value : String(value ?? "")])),
  restrictedSignupDomains: (domains ?? []).join(", "),
  ...Object.fromEntries(VISIBILITIES.map(([level]) => [`${LEVEL}${level}`, (levels ?? []).includes(level)])),
});

/** What was changed, for the graph. */
function sent(values, changed) {
  const input = {};
  for (const [name, value] of changed) {
    if (name.startsWith(LEVEL)) input.restrictedVisibilityLevels = VISIBILITIES.map(([level]) => level).filter((level) => values[`${LEVEL}${level}`]);
    else if (name === "restrictedSignupDomains") input[name] = value.split(",").map((each) => each.trim()).filter(Boolean);
    else if (NUMBERS.includes(name)) input[name] = Number(value);
    else input[name] = value === "" ? null : value;
  }
  return input;
}
