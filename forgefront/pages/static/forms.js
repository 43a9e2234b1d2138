// Forms: labelled fields, and refusals of the service shown at the field that they concern.

import { h } from "./dom.js";
import { draft, draftNotice, keepTyped, restore, typedValues } from "./repository/drafts.js";

/**
 * A labelled control. `kind` is `input`, `textarea` or `select`; `options` of a select are `[[value, word], …]`. Other properties are
 * attributes of the control. `id` must be unique on the page.
 */
export function field(name, word, { kind = "input", hint = null, options = [], id = `field-${name}`, ...attributes } = {}) {
  const control = h(kind, {
    id, name, autocapitalize: kind === "select" ? null : "none", spellcheck: kind === "select" ? null : "false", "aria-describedby": hint ? `${id}-hint` : null, ...attributes,
  }, options.map(([value, text]) => h("option", { value, selected: value === attributes.value }, text)));
  // What a reset restores.
  if (kind !== "select") control.defaultValue = attributes.value ?? "";
  return h("div.field", { "data-field": name }, h("label", { for: id }, word), control,
    hint ? h("p.hint", { id: `${id}-hint` }, hint) : null,
    h("p.wrong", { id: `${id}-wrong`, hidden: true }));
}

export const check = (name, word, checked) => h("label.check", null, h("input", { type: "checkbox", name, checked }), word);

/**
 * A form with a button `word`. One with a `name` is a landmark. `act(values)` gets the values by name, as booleans for checkboxes, and
 * throws what the service refuses. What was typed stays until it succeeds. `fieldOf` maps names of the schema, and codes of errors
 * without a field, to names of fields. `keep` is the page of a form with a name that stores in this tab what was typed until it is sent.
 */
export function form(name, fields, { word, act, fieldOf = {}, also = null, keep = null }) {
  const wrong = h("p.wrong", { role: "alert", hidden: true });
  const element = h("form.stack", { "aria-label": name, onsubmit: submit }, fields, wrong, h("div.actions.start", null, h("button.primary", null, word), also));
  const { send, forget } = keep ? keepDraft(keep, name, element) : { send: (sending) => sending(), forget: () => {} };

  async function submit(event) {
    event.preventDefault();
    // A button that is disabled would lose the focus.
    if (element.ariaBusy === "true") return;
    element.ariaBusy = "true";
    clear();
    try {
      await send(() => act(valuesOf(element)));
      forget();
    } catch (error) {
      if (error.name !== "AbortError") show(error);
    } finally {
      element.ariaBusy = "false";
    }
  }

  function clear() {
    for (const each of element.querySelectorAll(".wrong")) each.hidden = true;
    for (const each of element.querySelectorAll("[aria-invalid]")) each.removeAttribute("aria-invalid");
  }

  function show(error) {
    const refusals = error.userErrors?.length ? error.userErrors : [{ field: fieldOf[error.code], message: error.message }];
    const general = refusals.filter((each) => !mark(each));
    wrong.textContent = general.map(({ message }) => message).join(" ");
    wrong.hidden = !general.length;
    element.querySelector("[aria-invalid]")?.focus();
  }

  /** Shows a refusal at its field; false if the form has no such field. */
  function mark({ field: schemaName, message }) {
    const box = element.querySelector(`[data-field="${fieldOf[schemaName] ?? schemaName}"]`);
    if (!box) return false;
    const [control, text] = [box.querySelector("input, textarea, select"), box.querySelector(".wrong")];
    control.setAttribute("aria-invalid", "true");
    control.setAttribute("aria-describedby", [box.querySelector(".hint")?.id, text.id].filter(Boolean).join(" "));
    text.textContent = text.hidden ? message : `${text.textContent}, ${message}`;
    text.hidden = false;
    return true;
  }

  return element;
}

/** Shows in a form what was typed before and not sent, and stores what is typed. Returns `send(act)`, and `forget()` for when it was sent. */
function keepDraft(page, name, element) {
  const stored = draft(page, name);
  const typed = stored.read();
  const notice = typed ? draftNotice(stored) : null;
  const base = typedValues(element);
  if (typed) {
    // Others may have changed the other fields since.
    restore(element, Object.fromEntries(Object.entries(typed.values).filter(([name, value]) => value !== typed.base?.[name])));
    element.prepend(notice);
    // Once it is in the page: a folded form would hide what was typed.
    requestAnimationFrame(() => element.closest("details")?.toggleAttribute("open", true));
  }
  const forget = keepTyped(page, element, stored, base);
  return {
    send: stored.send,
    forget() {
      forget();
      notice?.remove();
    },
  };
}

const valuesOf = (element) =>
  Object.fromEntries([...element.elements].filter((each) => each.name).map((each) => [each.name, each.type === "checkbox" ? each.checked : each.value]));
