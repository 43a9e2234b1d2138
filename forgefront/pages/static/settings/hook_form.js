// The form of a hook, for a new one and for changes.

import { h } from "../dom.js";
import { check, field, form } from "../forms.js";

export const EVENTS = [
  ["pushEvents", "Pushes to branches"],
  ["tagPushEvents", "Pushes of tags"],
  ["issuesEvents", "Issues"],
  ["mergeRequestsEvents", "Merge requests"],
  ["noteEvents", "Comments"],
  ["buildEvents", "Builds"],
];

/**
 * `hook` is null for a new one. `keep` is the page, in which what is typed is kept. `act(variables)` gets the variables of the mutation; what is not to change is not
 * among them. Without `takesToken` there is no token: system hooks have none.
 */
export function hookForm(name, hook, { word, act, takesToken = true, keep }) {
  const known = (has) => (has ? "One is stored. Leave this empty to keep it." : null);
  const removal = (has, noun) => (has ? check(`no${noun}`, `Remove the stored ${noun.toLowerCase()}`, false) : null);
  return form(name, [
    field("url", "URL", { type: "text", inputmode: "url", required: true, value: hook?.url ?? "", hint: hook?.hasCredentials ? "A user name and a password are stored. They stay if the URL does." : "http or https, with a public host." }),
    takesToken ? field("token", "Token", { type: "password", autocomplete: "new-password", hint: known(hook?.hasToken) ?? "Sent as X-Gitlab-Token; nobody can read it afterwards." }) : null,
    removal(hook?.hasToken, "Token"),
    field("secret", "Signing key", { type: "password", autocomplete: "new-password", hint: known(hook?.hasSecret) ?? "whsec_ and 24 to 64 bytes in base64 (Standard Webhooks)." }),
    removal(hook?.hasSecret, "Secret"),
    h("fieldset", null, h("legend", null, "Events"), EVENTS.map(([each, text]) => check(each, text, hook ? hook[each] : each === "pushEvents"))),
    check("verify", "Verify the TLS certificate of the receiver", hook?.enableSslVerification ?? true),
  ], {
    word, keep,
    act({ url, token, secret, noToken, noSecret, ...flags }) {
      const sent = { ...flags };
      if (url.trim() !== hook?.url) sent.url = url.trim();
      if (token || noToken) sent.token = token || null;
      if (secret || noSecret) sent.secret = secret || null;
      return act(sent);
    },
  });
}
