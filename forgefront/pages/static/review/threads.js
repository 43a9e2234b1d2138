// Threads of a review: a card for each, which stays the same element while the thread changes, so that what is typed in it stays.

import { answer, doing } from "../discussion.js";
import { h, replace } from "../dom.js";
import { ago, more, person } from "../parts.js";
import { draftNames } from "../repository/drafts.js";
import { orderWarning } from "../repository/lines.js";
import { note, showNotes } from "../work/notes.js";
import { hunksOf } from "./lines.js";
import { showSuggestions } from "./suggestions.js";

/**
 * The threads of a merge request. `renew()` reads them all and returns their cards, oldest first; `byId(id)` is the card of one.
 * `read(operation, variables)` reads the merge request; `done()` is called after each change; `isNew(note)` returns whether a note is
 * marked as new.
 */
export function threads(page, { read, done, isNew = () => false }) {
  const cards = new Map();
  return {
    byId: (id) => cards.get(id),
    async renew() {
      let after = null;
      do {
        const { threads: { nodes, pageInfo } } = await read("Threads", { after });
        for (const thread of nodes) {
          if (cards.has(thread.id)) await cards.get(thread.id).show(thread);
          else cards.set(thread.id, card(page, thread, { done, isNew }));
        }
        after = pageInfo.hasNextPage ? pageInfo.endCursor : null;
      } while (after);
      return [...cards.values()];
    },
  };
}

function card(page, thread, { done, isNew }) {
  const [summary, notes, foot] = [h("summary", { "data-item": true }), h("div.notes"), h("div.thread-foot")];
  const element = h("details.thread.card", { id: `thread-${thread.databaseId}`, open: !thread.isResolved }, summary,
    thread.excerpt ? excerpt(thread.excerpt) : null, notes, foot);
  let current = null;
  /** The number of pages of notes that are shown, and whether the last one must be, because the viewer has replied. */
  let [pages, hasReplied] = [1, false];
  const wrong = h("p.wrong", { role: "alert", hidden: true });
  const noteOf = (each) => showSuggestions(page, note(page, each, isNew(each), done), each, done);
  const resolve = doing("button.resolve", "Resolve", wrong, async () => {
    const resolved = !current.isResolved;
    await page.mutate(resolved ? "Resolve" : "Unresolve", { thread: thread.id });
    element.open = !resolved;
    if (resolved) summary.focus({ preventScroll: true });
    await done();
  });
  const name = `thread ${thread.databaseId}`;
  const reply = h("button", { type: "button", onclick: () => openReply(true) }, "Reply");
  const place = h("div", null, h("div.actions.start", null, thread.viewerCan.reply ? reply : null, thread.viewerCan.resolve ? resolve : null));
  replace(foot, place, wrong);

  function openReply(focused) {
    const form = answer((body) => page.mutate("Reply", { thread: thread.id, body }), async () => {
      close();
      hasReplied = true;
      await done();
    }, { page, name, label: "Your reply", word: "Reply", also: () => [thread.viewerCan.resolve ? resolve : null, h("button", { type: "button", onclick: close }, "Cancel")] });
    replace(foot, form, wrong);
    if (focused) form.querySelector("textarea").focus();
  }
  function close() {
    replace(foot, place, wrong);
    place.firstChild.append(resolve);
    if (!thread.viewerCan.resolve) resolve.remove();
    reply.focus({ preventScroll: true });
  }

  const readNotes = async (after) => (await page.request("ThreadNotes", { thread: thread.id, after })).node.notes;

  async function show(next) {
    const before = current;
    current = next;
    element.dataset.resolved = String(next.isResolved);
    if (before && next.isResolved && !before.isResolved && !element.contains(document.activeElement)) element.open = false;
    resolve.textContent = next.isResolved ? "Open again" : "Resolve";
    replace(summary, title(next, next.notes.nodes.filter(isNew).length));
    if (JSON.stringify(before?.notes) === JSON.stringify(next.notes)) return;
    const nodes = [...next.notes.nodes];
    let { pageInfo } = next.notes;
    let count = 1;
    while (pageInfo.hasNextPage && (hasReplied || count < pages)) {
      const further = await readNotes(pageInfo.endCursor);
      nodes.push(...further.nodes);
      pageInfo = further.pageInfo;
      count += 1;
    }
    [pages, hasReplied] = [count, false];
    showNotes(notes, [nodes.map(noteOf), more(pageInfo, async (after) => {
      const further = await readNotes(after);
      pages += 1;
      notes.lastChild.before(...further.nodes.map(noteOf));
      return further.pageInfo;
    }, "Show more replies")]);
  }

  show(thread);
  if (draftNames(page).includes(name)) openReply(false);
  return { element, show, get thread() { return current; } };
}

/** The words of a thread's first line: where it is, what became of it, how many replies it has. */
function title({ author, createdAt, position, currentLine, isResolved, resolvedBy, resolvedAt, notes }, fresh) {
  const replies = notes.nodes.length - 1;
  const where = position ? `${position.newPath}:${position.newLine ?? position.oldLine}` : "The whole merge request";
  return [
    h("span.thread-place", null, where), person(author), ago(createdAt),
    replies > 0 ? h("span", null, `${replies}${notes.pageInfo.hasNextPage ? "+" : ""} ${replies === 1 ? "reply" : "replies"}`) : null,
    fresh ? h("span.tag.new-tag", null, `${fresh} new`) : null,
    position && !currentLine ? h("span.tag", null, "outdated") : null,
    isResolved ? h("span.tag.done-tag", null, "resolved", resolvedBy ? ` by ${resolvedBy.name}` : null, " ", ago(resolvedAt)) : null,
  ];
}

/** The lines of the diff on which a thread began. */
function excerpt(diff) {
  const lines = hunksOf(diff).flatMap((hunk) => hunk.lines);
  const number = (value) => h("span.number", { "data-number": value });
  const shown = h("div.diff-lines.excerpt", { tabindex: 0, role: "group", "aria-label": "Lines of the diff" },
    lines.map(({ kind, text, before, after }) => h(`div.line.${kind}`, null, number(before), number(after), h("span.text", null, text || " "))));
  return [orderWarning(diff), shown];
}

/** A box that hides everything but unresolved threads in `element` while it is checked. */
export function unresolvedOnly(element) {
  const box = h("input", { type: "checkbox", onchange: () => element.classList.toggle("unresolved-only", box.checked) });
  return h("label.check", null, box, "Only unresolved threads");
}
