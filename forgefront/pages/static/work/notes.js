// Comments: a card for each, which a person who may change it can edit.

import { answer } from "../discussion.js";
import { h, replace } from "../dom.js";
import { GraphError, mutate, request } from "../graph.js";
import { markdown } from "../markdown.js";
import { ago, person } from "../parts.js";
import { draftNames } from "../repository/drafts.js";

/**
 * The element of a comment, or of what the service noted about a change. `isNew` marks it as written since the viewer's last visit;
 * `changed()` is called after it was edited.
 */
export function note(page, each, isNew = false, changed = () => {}) {
  const { databaseId, bodyHtml, system, author, createdAt } = each;
  if (system) return h("div.note.system", null, person(author), markdown(bodyHtml), ago(createdAt));
  const text = h("div", null, each.upvote ? vote("+1", "In favor") : each.downvote ? vote("−1", "Against") : markdown(bodyHtml));
  const edit = each.viewerCan?.update ? editing(page, each, text, changed) : null;
  return h("article.note.card", { id: `note_${databaseId}` },
    h("header", null, person(author), ago(createdAt), isNew ? h("span.tag.new-tag", null, "new") : null, edit), text);
}

/** A comment that is a vote, as `:+1:` is. */
const vote = (sign, words) => h("p", null, h("b", null, sign), ` ${words}`);

/** The button that shows a form instead of the text of a comment. What was typed before and not sent is shown at once. */
function editing(page, { id, databaseId, author }, text, changed) {
  const name = `note ${databaseId}`;
  const button = h("button.quiet-button.edit-note", { type: "button", "aria-label": `Edit the comment by ${author.name}`, onclick: () => start(true) }, "Edit");
  let shown = [];

  async function start(focused) {
    button.disabled = true;
    try {
      const { node } = await request("work/note", "Note", { id }, { signal: page.signal });
      if (!node) throw new GraphError("NOT_FOUND", "This comment does not exist any more.");
      const form = answer(save, async () => {
        stop();
        await changed();
        document.querySelector(`#note_${databaseId} .edit-note`)?.focus({ preventScroll: true });
      }, {
        page, name, text: node.body, word: "Save", label: `The comment by ${author.name}`,
        also: (textOf) => h("button", { type: "button", onclick: () => (textOf.sent(), stop()) }, "Cancel"),
      });
      shown = [...text.childNodes];
      replace(text, form);
      if (focused) form.querySelector("textarea").focus();
    } catch (error) {
      if (error.name === "AbortError") return;
      button.disabled = false;
      text.append(h("p.wrong", { role: "alert" }, error.message));
    }
  }

  async function save(body) {
    shown = [markdown((await mutate("work/note", "Update", { id, body }, { signal: page.signal })).note.bodyHtml)];
    page.announce("The comment is changed.");
  }

  function stop() {
    button.disabled = false;
    replace(text, shown);
    button.focus({ preventScroll: true });
  }

  if (draftNames(page).includes(name)) start(false);
  return button;
}

/** Scrolls to the comment that the address names by its fragment, as addresses in hooks do, unless the page is opened again. Further pages of `conversation` are read for it. */
export async function goToNote(conversation = null) {
  const id = /^#(note_\d+)$/.exec(location.hash)?.[1];
  if (!id || scrollY) return;
  if (!document.getElementById(id)) await conversation?.renew({ isWhole: true });
  const element = document.getElementById(id);
  element?.closest("details")?.toggleAttribute("open", true);
  element?.scrollIntoView({ block: "center" });
}

/** Shows `made` in an element. A comment that is being edited there stays as it is, with the focus; otherwise the focus stays at its comment. */
export function showNotes(element, made) {
  const active = element.contains(document.activeElement) ? document.activeElement : null;
  const focused = active?.closest("[id]")?.id;
  const edited = new Map([...element.children].filter((each) => each.id && each.querySelector("form")).map((each) => [each.id, each]));
  element.replaceChildren(...made.flat().filter(Boolean).map((each) => edited.get(each.id) ?? each));
  // An element that is put in again has lost the focus.
  if (active?.isConnected) active.focus({ preventScroll: true });
  else if (active) [...element.children].find((each) => each.id === focused)?.querySelector(".edit-note")?.focus({ preventScroll: true });
}
