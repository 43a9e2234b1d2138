// The users of the instance, with a search, and the form of a new one.

import { adminAddress, requireAdmin, showAdmin } from "../../admin/page.js";
import { h, replace } from "../../dom.js";
import { check, field, form } from "../../forms.js";
import { ago, avatar, section } from "../../parts.js";
import { connectionList, entry } from "../../project/lists.js";

const STATES = { all: ["all", {}], active: ["active", { state: ["ACTIVE"] }], blocked: ["blocked", { state: ["BLOCKED"] }], admins: ["administrators", { isAdmin: true }] };

export async function open(page) {
  requireAdmin(page);
  const asked = page.query.get("state");
  const state = Object.hasOwn(STATES, asked ?? "") ? asked : "all";
  const search = page.query.get("search")?.trim() ?? "";
  const filters = Object.fromEntries(Object.entries(STATES).map(([name, [, filter]]) => [name, search ? { ...filter, search } : filter]));
  const to = (changes) => {
    const query = new URLSearchParams(Object.entries({ search, state, ...changes }).filter(([name, value]) => value && !(name === "state" && value === "all")));
    return `${adminAddress("users")}${query.size ? `?${query}` : ""}`;
  };
  const { holder, element } = await connectionList({
    read: (after) => page.request("Users", { after, filter: filters[state], ...filters }),
    connection: "users", name: "Users", none: "No user matches.", item: userEntry,
  });
  const field = h("input", {
    type: "search", name: "search", placeholder: "Name, user name or email", "aria-label": "Search users", value: search, autocomplete: "off", autocapitalize: "none", maxlength: 255, "data-filter": true,
  });
  showAdmin(page, "users", [
    h("div.actions.spread", null,
      h("nav.chips", { "aria-label": "Filter by state" }, Object.entries(STATES).map(([name, [word]]) =>
        h("a", { href: to({ state: name }), "aria-current": name === state ? "true" : null }, word, h("b", null, String(holder[name].totalCount))))),
      h("form.filter", { role: "search", "aria-label": "Users", onsubmit: (event) => (event.preventDefault(), page.go(to({ search: field.value.trim() }))) }, field)),
    element,
    section("New user", null, creating(page)),
  ]);
}

function userEntry({ username, name, email, state, isAdmin, confirmed, createdAt, currentSignInAt }) {
  return entry(
    [avatar({ name }), h("a", { href: adminAddress("users", username), "data-item": true }, name),
      isAdmin ? h("span.tag", null, "administrator") : null, state === "BLOCKED" ? h("span.tag", null, "blocked") : null, confirmed ? null : h("span.tag", null, "not confirmed")],
    [h("span", null, `@${username}`), h("span", null, email), h("span", null, "created ", ago(createdAt)), currentSignInAt ? h("span", null, "signed in ", ago(currentSignInAt)) : null], null);
}

const creating = (page) =>
  form("New user", [
    field("username", "User name", { required: true, maxlength: 255, autocomplete: "off" }),
    field("name", "Name", { required: true, maxlength: 255, autocomplete: "off", autocapitalize: "words" }),
    field("email", "Email", { type: "email", required: true, autocomplete: "off" }),
    field("password", "Password", { type: "password", autocomplete: "new-password", hint: "8 to 128 characters. Without one the user signs in with a link that you make on the next page." }),
    check("canCreateGroup", "May create groups", true),
    check("admin", "Is an administrator", false),
  ], {
    word: "Create the user", keep: page,
    async act({ password, ...values }) {
      const { user } = await page.mutate("CreateUser", { input: { ...values, ...(password && { password }), confirm: false } });
      page.announce(`The user ${user.username} is created.`);
      page.go(adminAddress("users", user.username));
    },
  });
