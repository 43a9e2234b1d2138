// Discussions: the list of notes, the form for a new one, and buttons that run a mutation and show its error.

import { h } from "./dom.js";
import { showError } from "./errors.js";
import { more } from "./parts.js";
import { focusAgain } from "./renewing.js";
import { draft, keepTyped, restore } from "./repository/drafts.js";
import { attaching } from "./work/attachments.js";

/**
 * A paginated list of notes. `read(after)` returns a connection, `make` an element for a node, several, or null; `show` replaces the
 * elements of the list. `renew()` reads the pages that are shown again; with `isWhole` all pages, so that a new note at the end appears.
 */
export async function discussion(read, make, show = (list, made) => list.replaceChildren(...made)) {
  const list = h("div.notes", { role: "group", "aria-label": "Comments" });
  /** The number of pages that are shown. */
  let pages = 1;
  const first = await read(null);
  list.append(...first.nodes.flatMap((each) => make(each) ?? []));
  const next = more(first.pageInfo, async (after) => {
    pages += 1;
    const page = await read(after);
    list.append(...page.nodes.flatMap((each) => make(each) ?? []));
    return page.pageInfo;
  }, "Show more comments");
  return {
    element: [list, next],
    async renew({ isWhole = false } = {}) {
      const nodes = [];
      let count = 0;
      let pageInfo = null;
      do {
        const page = await read(pageInfo?.endCursor ?? null);
        nodes.push(...page.nodes);
        pageInfo = page.pageInfo;
        count += 1;
      } while (pageInfo.hasNextPage && (isWhole || count < pages));
      pages = count;
      next.continueAfter(pageInfo);
      const active = document.activeElement;
      show(list, nodes.flatMap((each) => make(each) ?? []));
      if (list.contains(active)) active.focus({ preventScroll: true });
    },
  };
}

/**
 * A comment form. Its button calls `send(text)`, and `done()` after it. `also(textOf)` returns buttons beside it, which may send the text
 * too: `textOf()` returns it, `textOf.sent()` forgets it. What is typed is kept in this tab until it is sent; where a page has several
 * forms, `name` says which it is. `text` is what the field has at first.
 */
export function answer(send, done, { page, also = () => null, comments = true, name = "", text = "", label = "Your comment", word = "Comment" }) {
  const field = h("textarea", { name: "body", id: name ? null : "comment", "aria-label": label, placeholder: "Write a comment. Ctrl+Enter sends.", onkeydown: sendByKey }, text);
  const wrong = h("p.wrong", { role: "alert", hidden: true });
  const textOf = () => field.value;
  textOf.sent = () => {
    field.value = "";
    forget();
  };
  const submit = async (event) => {
    event.preventDefault();
    if (!field.value.trim()) return;
    await attempt(wrong, [...event.target.elements], async () => {
      await send(field.value);
      textOf.sent();
      await done();
    });
  };
  const element = h("form.stack", { onsubmit: submit }, comments ? field : null, wrong,
    h("div.actions.start", null, also(textOf, wrong), comments ? h("button.primary", null, word) : null, comments ? attaching(page, field, wrong) : null));
  const stored = draft(page, name);
  const forget = keepTyped(page, element, stored);
  restore(element, stored.read()?.values ?? {});
  return element;
}

function sendByKey(event) {
  if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
  event.preventDefault();
  event.target.form.requestSubmit();
}

/** A button that runs `act`, once at a time, and shows errors in `wrong`. */
export function doing(kind, words, wrong, act) {
  const button = h(kind, { type: "button", onclick: () => attempt(wrong, [button], act) }, words);
  return button;
}

async function attempt(wrong, controls, act) {
  wrong.hidden = true;
  const active = document.activeElement;
  for (const each of controls) each.disabled = true;
  try {
    await act();
  } catch (error) {
    showError(wrong, error);
  } finally {
    for (const each of controls) each.disabled = false;
    focusAgain(active);
  }
}
