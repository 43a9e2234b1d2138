// The dialog that asks before something is removed.

import { h } from "./dom.js";

/** Asks, and returns a promise of whether the person agrees. Escape and a navigation mean no. The focus returns to where it was. */
export function confirmed(page, { title, text, word }) {
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
