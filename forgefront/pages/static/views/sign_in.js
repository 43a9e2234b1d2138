// The sign-in page: by private token, or by user name and password.

import { address } from "../address.js";
import { h, replace } from "../dom.js";
import { ask, change } from "../graph.js";
import { prose } from "../parts.js";

const VIEW = "sign_in";

/** `page.here`: shown instead of another page, which opens afterwards. `page.why`: the reason for signing in again. */
export async function open(page) {
  const { frontPage } = await page.ask("FrontPage");
  const home = frontPage.homePageUrl;
  if (page.here && home && new RegExp(`^${address("")}$`).test(location.pathname) && !leadsHere(home)) {
    location.replace(home);
    return;
  }
  page.title("Sign in");
  const wrong = h("p.wrong", { role: "alert", hidden: true });
  const body = h("div.stack");
  const state = { stay: false };

  const form = (fields, sign) =>
    h("form", { onsubmit: (event) => (event.preventDefault(), attempt(event.target, sign)) }, fields,
      h("label.check", null, h("input", { type: "checkbox", name: "stay", checked: state.stay, onchange: (event) => (state.stay = event.target.checked) }), "Stay signed in"),
      h("button.primary", null, "Sign in"));

  function show(withToken) {
    wrong.hidden = true;
    replace(body,
      withToken
        ? form([field("token", "Private token", { type: "password", autocomplete: "current-password" }), h("p.hint", null, "It is stored in this browser and sent only to this service.")], (given) => given.token.trim())
        : form([field("login", "User name or e-mail", { autocomplete: "username" }), field("password", "Password", { type: "password", autocomplete: "current-password" })], byPassword),
      h("button.quiet-button.switch", { type: "button", onclick: () => show(!withToken) }, withToken ? "Use a password instead" : "Use a token instead"));
    body.querySelector("input").focus();
  }

  async function byPassword({ login, password }) {
    const { user } = await change(VIEW, "SignIn", { login, password }, { signal: page.signal, using: "" });
    return user.privateToken;
  }

  async function attempt(element, sign) {
    const given = Object.fromEntries(new FormData(element));
    const button = element.querySelector(".primary");
    button.disabled = true;
    wrong.hidden = true;
    try {
      const token = await sign(given);
      const { instance } = await ask(VIEW, "Check", {}, { signal: page.signal, using: token });
      await page.signedIn(token, { stay: state.stay, minutes: instance.sessionExpireDelay });
    } catch (error) {
      if (error.name === "AbortError") return;
      wrong.textContent = error.code === "UNAUTHENTICATED" ? WRONG[given.token === undefined ? "password" : "token"] : error.message;
      wrong.hidden = false;
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
  show(true);
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
