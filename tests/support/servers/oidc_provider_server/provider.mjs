// npm's oidc-provider with one confidential client, for tests of signing in. Arguments: the port, the redirect URI.
// Its development pages accept any login; the account has that name.

import { Provider } from "oidc-provider";

const [port, redirectUri] = process.argv.slice(2);
const issuer = `http://127.0.0.1:${port}`;

const provider = new Provider(issuer, {
  clients: [{
    client_id: "forgefront",
    client_secret: "client & secret",
    redirect_uris: [redirectUri],
    post_logout_redirect_uris: [redirectUri],
  }],
  claims: { openid: ["sub"], profile: ["name", "preferred_username"], email: ["email", "email_verified"], groups: ["groups"] },
  scopes: ["openid", "profile", "email", "groups"],
  pkce: { required: () => true },
  cookies: { keys: ["for tests"] },
  findAccount: (_, id) => ({
    accountId: id,
    claims: () => ({
      sub: id, name: id.toUpperCase(), preferred_username: id, email: `${id}@example.org`, email_verified: true, groups: ["devs"],
    }),
  }),
});

provider.listen(Number(port), "127.0.0.1", () => console.log("ready"));
