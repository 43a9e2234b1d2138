// The access tokens of a user: their list, and a form for a new one, whose value is shown once.

import { doing } from "./discussion.js";
import { h } from "./dom.js";
import { field, form } from "./forms.js";
import { ago, copyable, more, section } from "./parts.js";

const SCOPES = [
  ["READ", "read", "Read by GraphQL and v3, and fetch by git"],
  ["WRITE", "write", "Also change things by GraphQL and v3"],
  ["GIT", "git", "Fetch and push by git"],
  ["ADMIN", "admin", "Use the rights of an administrator"],
];

/** The section of the page of a user. `isOwn`: the viewer is the user, and may create tokens. */
export async function accessTokens(page, username, isOwn) {
  const wrong = h("p.wrong", { role: "alert", hidden: true });
  const none = h("p.quiet", null, "No access tokens.");
  const list = h("ol.rows.tokens", { "aria-label": "Access tokens" });
  const show = () => {
    none.hidden = list.childElementCount > 0;
    list.hidden = !none.hidden;
  };

  function row(token) {
    const revoke = async () => {
      if (!confirm(`Revoke "${token.name}"? Whatever uses it stops working.`)) return;
      await page.mutate("RevokeAccessToken", { id: token.id });
      item.remove();
      show();
    };
    const item = h("li.row", null, h("span"),
      h("p.row-title", null, token.name),
      h("span.row-side", null, doing("button", "Revoke", wrong, revoke)),
      h("p.row-meta", null,
        token.scopes.map((scope) => h("span.tag", null, scope.toLowerCase())),
        h("span", null, "created ", ago(token.createdAt)),
        h("span", null, ...(token.lastUsedAt ? ["last used ", ago(token.lastUsedAt)] : ["never used"])),
        h("span", null, ...expiry(token))));
    return item;
  }

  async function load(after) {
    const { user } = await page.request("AccessTokens", { username, after });
    list.append(...user.accessTokens.nodes.map(row));
    show();
    return user.accessTokens.pageInfo;
  }

  const pageInfo = await load(null);
  const made = h("div", { role: "status" });
  const created = ({ token, accessToken }) => {
    list.prepend(row(accessToken));
    show();
    made.replaceChildren(h("div.card", null, h("p", null, `Copy the token "${accessToken.name}" now. It is not shown again.`), copyable(token)));
  };
  return section("Access tokens", null, wrong, made, isOwn ? tokenForm(page, created) : null, none, list, more(pageInfo, load));
}

function expiry({ expiresAt }) {
  if (!expiresAt) return ["does not expire"];
  return [new Date(expiresAt) <= new Date() ? "expired " : "expires ", ago(expiresAt)];
}

/** The form for a new token. What was typed is kept until the token is created; the token itself is stored nowhere. */
function tokenForm(page, created) {
  const element = form("New access token", [
    field("name", "Name", { id: "token-name", required: true, maxlength: 255, autocomplete: "off" }),
    h("fieldset.stack.scopes", null, h("legend", null, "Scopes"),
      SCOPES.filter(([scope]) => scope !== "ADMIN" || page.viewer.isAdmin).map(([scope, word, about]) =>
        h("label.check", null, h("input", { type: "checkbox", name: scope, value: scope }), h("strong", null, word), h("span.hint", null, about)))),
    field("expiresAt", "Expires after", { id: "token-expires", type: "date", hint: "Without a date it does not expire." }),
  ], {
    word: "Create token",
    keep: page,
    async act({ name, expiresAt, ...scopes }) {
      const input = { name, scopes: Object.keys(scopes).filter((scope) => scopes[scope]) };
      // The end of that day where the browser is.
      if (expiresAt) input.expiresAt = new Date(`${expiresAt}T23:59:59`).toISOString();
      created(await page.mutate("CreateAccessToken", { input }));
      element.reset();
    },
  });
  return h("div.card", null, element);
}
