// The profile of a user.

import { address, outside } from "../address.js";
import { h, replace } from "../dom.js";
import { accessTokens } from "../access_tokens.js";
import { ago, avatar } from "../parts.js";

export async function open(page) {
  const { user } = await page.ask("User", { username: page.where.name });
  if (!user) throw page.missing("user");
  const isOwn = page.viewer?.username === user.username;
  const tokens = isOwn || page.viewer?.isAdmin ? await accessTokens(page, user.username, isOwn) : null;
  const website = outside(user.websiteUrl);
  page.title(user.name, [[user.username, address("u", user.username)]]);
  page.show(
    h("article.reading", null,
      h("div.head-line", null, h("span.portrait", null, avatar(user)), h("h1", null, user.name)),
      h("div.facts", null,
        h("span", null, `@${user.username}`),
        h("span", null, "member since ", ago(user.createdAt)),
        user.isAdmin ? h("span.tag", null, "administrator") : null,
        user.state === "ACTIVE" ? null : h("span.tag", null, user.state.toLowerCase()),
        website ? h("a", { href: website, rel: "noopener noreferrer" }, user.websiteUrl) : null),
      isOwn ? h("div.actions.start", null, h("a.button", { href: address("-", "profile") }, "Edit your account"), user.isAdmin ? h("a.button", { href: address("-", "admin") }, "Administration") : null, h("a.button", { href: address("-", "issues") }, "Your issues"), h("a.button", { href: address("-", "merge_requests") }, "Your merge requests")) : null,
      !isOwn && page.viewer?.isAdmin ? h("div.actions.start", null, h("a.button", { href: address("-", "admin", "users", user.username) }, "Change the account")) : null,
      user.bio ? h("div.card", null, h("p", null, user.bio)) : null,
      page.viewer?.isAdmin && user.state === "ACTIVE" ? linkMaker(page, user) : null,
      tokens));
}

/** For administrators: a button that makes a link with which the user signs in once. */
function linkMaker(page, user) {
  const shown = h("div", { "aria-live": "polite" });
  const make = async (event) => {
    event.target.disabled = true;
    try {
      const { link } = await page.change("CreateSignInLink", { id: user.databaseId });
      const field = h("input", { id: "sign-in-link", readonly: true, value: link.url, onfocus: () => field.select() });
      replace(shown,
        h("div.field", null, h("label", { for: "sign-in-link" }, `Link for ${user.name}`), field,
          h("p.hint", null, `It signs in once, until ${new Date(link.expiresAt).toLocaleString()}. It is shown only now, and replaces earlier links.`)));
      field.focus();
    } catch (error) {
      if (error.name !== "AbortError") replace(shown, h("p.wrong", { role: "alert" }, error.message));
    } finally {
      event.target.disabled = false;
    }
  };
  return h("div.card.stack", null, h("div.actions.start", null, h("button", { type: "button", id: "make-link", onclick: make }, "Make a sign-in link")), shown);
}
