// What is new in a merge request since the viewer's last visit, and the record of this one.

import { h, replace } from "../dom.js";
import { ago } from "../parts.js";

/**
 * Records what the viewer sees: `saw({head})`, `saw({note})`, with the newest. It is sent while the page is visible, so that what arrives
 * in a hidden tab stays new.
 */
export function visit(page, about) {
  let [seen, sent] = [{ head: null, note: null }, ""];
  const send = () => {
    const key = JSON.stringify(seen);
    if (document.hidden || key === sent || key === NOTHING) return;
    sent = key;
    // What is new is a help: a page without it is whole, for example with a token that only reads.
    page.mutate("MarkVisited", { ...about, ...seen }).catch(() => {});
  };
  document.addEventListener("visibilitychange", send, { signal: page.signal });
  return {
    saw(values) {
      seen = { ...seen, ...values };
      send();
    },
  };
}

const NOTHING = JSON.stringify({ head: null, note: null });

/** Whether a note of another user is newer than those of a visit. Nothing is new at the first visit. */
export const newerThan = (visit, viewer) => ({ databaseId, author }) =>
  Boolean(visit) && databaseId > (visit.noteDatabaseId ?? 0) && author.username !== viewer.username;

export const newLine = (visit) => h("p.new-line", null, h("span", null, "New since your last visit ", ago(visit.visitedAt)));

/**
 * The choice between all changes and those since a visit, with `show(visit, head)`, and `value`, "all" or "since". `choose()` is called
 * when it changes, by a button or the key s.
 */
export function sinceChoice(page, choose) {
  const element = h("div");
  const choice = { element, value: "all", show };
  let buttons = [];

  function show(visit, head) {
    buttons = [];
    replace(element);
    if (!visit?.headOid || visit.headOid === head) choice.value = "all";
    else if (visit.newCommitCount === null) {
      choice.value = "all";
      replace(element, h("p.quiet", null, "At your last visit ", ago(visit.visitedAt), " the newest commit was ", h("code", null, visit.headOid.slice(0, 8)),
        ". It is no longer in the repository, so all changes are shown."));
    } else {
      const words = visit.newCommitCount === 1 ? "1 commit" : `${visit.newCommitCount} commits`;
      buttons = [["all", "All changes"], ["since", `Since your last visit (${words})`]].map(([name, word]) =>
        h("button", { type: "button", "data-changes": name, onclick: () => change(name) }, word));
      replace(element, h("div.clone.layout", { role: "group", "aria-label": "Which changes" }, buttons));
    }
    press();
  }
  function press() {
    for (const each of buttons) each.setAttribute("aria-pressed", String(each.dataset.changes === choice.value));
  }
  function change(name) {
    if (name === choice.value) return;
    choice.value = name;
    press();
    choose();
  }
  document.addEventListener("keydown", (event) => {
    if (event.key !== "s" || event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || !buttons.length) return;
    if (event.target.closest?.("input, textarea, select") || document.querySelector("dialog[open]")) return;
    event.preventDefault();
    change(choice.value === "all" ? "since" : "all");
    page.announce(choice.value === "all" ? "All changes" : "Changes since your last visit");
  }, { signal: page.signal });
  return choice;
}
