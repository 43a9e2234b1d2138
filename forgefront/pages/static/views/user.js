// The profile of a user.

import { address, outside } from "../address.js";
import { h } from "../dom.js";
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
      user.bio ? h("div.card", null, h("p", null, user.bio)) : null,
      tokens));
}
