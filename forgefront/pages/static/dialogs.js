// Buttons that remove something, and the dialog that asks before.

import { h } from "./dom.js";
import { showError } from "./errors.js";

/**
 * A button that removes something after a question. `act` throws what the service refuses. `label` is for screen readers where several
 * buttons have the same word. `typed` is a name that the person must type, before something large is removed.
 */
export function removal(page, { word = "Remove", label, title, text, act, typed = null }) {
  const wrong = h("p.wrong", { role: "alert", hidden: true });
  const remove = async () => {
    wrong.hidden = true;
    if (!(await confirmed(page, { title, text, word, typed }))) return;
    try {
      await act();
    } catch (error) {
      showError(wrong, error);
    }
  };
  return [h("button.danger", { type: "button", "aria-label": label, onclick: remove }, word), wrong];
}

/** Asks, and returns a promise of whether the person agrees. Escape and a navigation mean no. The focus returns to where it was. */
function confirmed(page, { title, text, word, typed }) {
  return new Promise((resolve) => {
    const agree = () => dialog.close("yes");
    const yes = h("button.danger", { type: "button", disabled: typed !== null, onclick: agree }, word);
    const input = typed === null ? null : h("input", {
      id: "confirm-name", autocomplete: "off", autocapitalize: "none", spellcheck: "false", autofocus: true,
      oninput: ({ target }) => (yes.disabled = target.value !== typed), onkeydown: ({ key }) => key === "Enter" && !yes.disabled && agree(),
    });
    const dialog = h("dialog", { "aria-labelledby": "confirm-title", "aria-describedby": "confirm-text" },
      h("h2", { id: "confirm-title" }, title),
      h("p", { id: "confirm-text" }, text),
      input ? h("div.field", null, h("label", { for: "confirm-name" }, "Type ", h("code", null, typed), " to confirm"), input) : null,
      h("div.actions.end", null,
        h("button", { type: "button", autofocus: !input, onclick: () => dialog.close("no") }, "Cancel"),
        yes));
    const leave = () => dialog.close("no");
    page.signal.addEventListener("abort", leave);
    dialog.addEventListener("close", () => {
      page.signal.removeEventListener("abort", leave);
      dialog.remove();
      resolve(dialog.returnValue === "yes");
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}
