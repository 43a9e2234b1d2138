// Buttons that remove something, and the dialog that asks before.

import { h } from "./dom.js";

/**
 * A button that removes something after a question. `act` throws what the service refuses. `label` is for screen readers where several
 * buttons have the same word.
 */
export function removal(page, { word = "Remove", label, title, text, act }) {
  const wrong = h("p.wrong", { role: "alert", hidden: true });
  const remove = async () => {
    wrong.hidden = true;
    if (!(await confirmed(page, { title, text, word }))) return;
    try {
      await act();
    } catch (error) {
      if (error.name === "AbortError") return;
      wrong.textContent = error.message;
      wrong.hidden = false;
    }
  };
  return [h("button.danger", { type: "button", "aria-label": label, onclick: remove }, word), wrong];
}

/** Asks, and returns a promise of whether the person agrees. Escape and a navigation mean no. The focus returns to where it was. */
function confirmed(page, { title, text, word }) {
  return new Promise((resolve) => {
    const dialog = h("dialog", { "aria-labelledby": "confirm-title", "aria-describedby": "confirm-text" },
      h("h2", { id: "confirm-title" }, title),
      h("p", { id: "confirm-text" }, text),
      h("div.actions.end", null,
        h("button", { type: "button", autofocus: true, onclick: () => dialog.close("no") }, "Cancel"),
        h("button.danger", { type: "button", onclick: () => dialog.close("yes") }, word)));
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
