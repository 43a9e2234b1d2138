// The sign-in page: by private token, by user name and password, at the OpenID provider, or by a link that an administrator made.

import { address, outside } from "../address.js";
import { h, replace } from "../dom.js";
import { mutate, request } from "../graph.js";
import { prose } from "../parts.js";
import * as openid from "../openid.js";

const VIEW = "sign_in";

/** `page.here`: shown instead of another page, which opens afterwards. `page.why`: the reason for signing in again. */
export async function open(page) {
  const returned = openid.read(page.query);
  const link = new URLSearchParams(location.hash.slice(1)).get("link");
  // Neither a code nor a link stays in the history.
  if (!page.here && (returned || link)) history.replaceState(null, "", location.pathname);
  const { frontPage } = await page.request("FrontPage");
  const home = frontPage.homePageUrl;
  if (page.here && home && new RegExp(`^${address("")}$`).test(location.pathname) && !leadsHere(home)) {
    location.replace(home);
    return;
  }
  page.title("Sign in");
  const wrong = h("p.wrong", { role: "alert", hidden: true });
  const body = h("div.stack");
  const state = { stay: false };

  const form = (fields, sign, word = "Sign in") =>
    h("form", { onsubmit: (event) => (event.preventDefault(), attempt(event.target, sign)) }, fields,
      h("label.check", null, h("input", { type: "checkbox", name: "stay", checked: state.stay, onchange: (event) => (state.stay = event.target.checked) }), "Stay signed in"),
      h("button.primary", null, word));

  function show(withToken) {
    wrong.hidden = true;
    replace(body,
      withToken
        ? form([field("token", "Private token", { type: "password", autocomplete: "current-password" }), h("p.hint", null, "It is stored in this browser and sent only to this service.")], (given) => given.token.trim())
        : form([
          field("login", "User name or email", { autocomplete: "username" }),
          field("password", "Password", { type: "password", autocomplete: "current-password" }),
        ], byPassword),
      frontPage.openIdLabel ? h("button.provider", { type: "button", onclick: atProvider }, `Sign in with ${frontPage.openIdLabel}`) : null,
      h("button.quiet-button.switch", { type: "button", onclick: () => show(!withToken) }, withToken ? "Use a password instead" : "Use a token instead"));
    body.querySelector("input").focus();
  }

  function showLink() {
    const password = field("password", "New password (optional)", { type: "password", autocomplete: "new-password", required: false, minlength: 8 });
    replace(body, form([password, h("p.hint", null, "At least 8 characters. With it you can sign in again; this link works only once.")], byLink));
    body.querySelector(".primary").focus();
  }

  async function byPassword({ login, password }) {
    const { user } = await mutate(VIEW, "SignIn", { login, password }, { signal: page.signal, using: "" });
    return user.privateToken;
  }

  async function byLink({ password }) {
    const { user } = await mutate(VIEW, "SignInByLink", { code: link, password: password || null }, { signal: page.signal, using: "" });
    return user.privateToken;
  }

  async function atProvider(event) {
    event.target.disabled = true;
    wrong.hidden = true;
    try {
      const { openIdSignIn } = await request(VIEW, "OpenIdSignIn", {}, { signal: page.signal, using: "" });
      const provider = outside(openIdSignIn.authorizationUrl);
      openid.begin(openIdSignIn.ticket, { stay: state.stay, from: page.here ? `${location.pathname}${location.search}` : null });
      location.assign(provider);
    } catch (error) {
      event.target.disabled = false;
      report(error);
    }
  }

  /** Completes a sign-in after the provider has sent the browser back. */
  async function finishAtProvider() {
    try {
      const { ticket, stay, from } = openid.end();
      if (returned.error) throw new Error(`The provider has not signed you in: ${returned.error}`);
      const { code, state: returnedState, issuer } = returned;
      const { user } = await mutate(VIEW, "FinishOpenIdSignIn", { ticket, state: returnedState, code, issuer }, { signal: page.signal, using: "" });
      await enter(user.privateToken, { stay, from, fromProvider: true });
    } catch (error) {
      show(!frontPage.directoryEnabled);
      report(error);
    }
  }

  async function enter(token, { stay, from = null, fromProvider = false }) {
    const { instance } = await request(VIEW, "Check", {}, { signal: page.signal, using: token });
    if (from) history.replaceState(null, "", from);
    await page.signedIn(token, { stay, minutes: instance.sessionExpireDelay, fromProvider });
  }

  function report(error, words = error.message) {
    if (error.name === "AbortError") return;
    wrong.textContent = words;
    wrong.hidden = false;
  }

  async function attempt(element, sign) {
    const given = Object.fromEntries(new FormData(element));
    const button = element.querySelector(".primary");
    button.disabled = true;
    wrong.hidden = true;
    try {
      await enter(await sign(given), state);
    } catch (error) {
      const words = sign === byLink ? null : WRONG[given.token === undefined ? "password" : "token"];
      report(error, error.code === "UNAUTHENTICATED" && words ? words : error.message);
      element.querySelector("input").select();
    } finally {
      button.disabled = false;
    }
  }

  page.show(
    h("div.sign-in", null,
      h("h1", null, "Sign in to Forgefront"),
      page.why ? h("p.card", { role: "status" }, page.why) : null,
      frontPage.signInText ? h("div.card", null, prose(frontPage.signInText)) : null,
      wrong,
      h("div.card", null, body)));
  if (returned) await finishAtProvider();
  else if (link && !page.here) showLink();
  else show(!frontPage.directoryEnabled);
}

const WRONG = {
  token: "Invalid token. Check that it is complete and has not been reset.",
  password: "Invalid user name or password.",
};

function field(name, word, attributes) {
  const id = `field-${name}`;
  return h("div.field", null, h("label", { for: id }, word), h("input", { id, name, required: true, autocapitalize: "none", spellcheck: "false", ...attributes }));
}

/** Whether an address is this page itself, which would be a redirect loop. */
function leadsHere(text) {
  const url = new URL(text, location);
  return url.origin === location.origin && url.pathname === location.pathname;
}
