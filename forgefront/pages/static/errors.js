// Shows the errors of requests. A request that was aborted because the page was left has no error to show.

import { h, replace } from "./dom.js";

/** Shows an error in `alert`, the hidden element that a form or a button has for it. */
export function showError(alert, error) {
  if (error.name === "AbortError") return;
  alert.textContent = error.message;
  alert.hidden = false;
}

/** Returns a function that replaces the contents of an element by an error. */
export const replaceByError = (element) => (error) => error.name !== "AbortError" && replace(element, h("p.wrong", { role: "alert" }, error.message));
