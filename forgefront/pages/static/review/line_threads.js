// Threads on lines of the changed files, and the forms that start them. They are below their line, or below the file while it is not shown.

import { answer } from "../discussion.js";
import { h } from "../dom.js";
import { draftNames } from "../repository/drafts.js";
import { suggestButton } from "./suggestions.js";

const keyOf = ({ before, after }) => (after === null ? `-${before}` : `+${after}`);
const keyOfThread = ({ oldLine, newLine }) => (newLine === null ? `-${oldLine}` : `+${newLine}`);

/**
 * The threads of all files. `start(entry, line, body)` starts one; it is null for those who may not comment, and called for added lines
 * only if `addedOnly`. `of(entry)` are the threads of a file: `begin()` is called before its lines are drawn, `after(row, line)` returns what
 * is below a line, and `rest()` what is below the file; `count` shows how many are not resolved.
 */
export function lineThreads(page, { start, addedOnly = false }) {
  const files = new Map();
  const outdated = h("div.notes");
  const others = h("section.part", { hidden: true }, h("h2", null, "Threads on lines that are not in the changes any more"), outdated);

  function of(entry) {
    const file = { rows: new Map(), slots: new Map(), rest: h("div.line-threads", { hidden: true }), count: h("span.tag", { hidden: true }) };
    files.set(entry.newPath, file);
    let drafts = start ? draftNames(page) : [];

    /** The element below a line, made when it is first needed. */
    function slotOf(key) {
      if (!file.slots.has(key)) file.slots.set(key, h("div.line-threads"));
      return file.slots.get(key);
    }

    file.put = (key, element) => {
      const slot = slotOf(key);
      if (element.parentElement !== slot) slot.append(element);
      file.settle(key);
    };
    /** Puts what is below a line where it belongs. */
    file.settle = (key) => {
      const [slot, row] = [file.slots.get(key), file.rows.get(key)];
      if (row?.isConnected) {
        if (row.nextElementSibling !== slot) row.after(slot);
      } else if (!row && slot.parentElement !== file.rest) file.rest.append(slot);
      file.rest.hidden = !file.rest.querySelector(".thread");
    };

    function openForm(line, key, focused) {
      const slot = slotOf(key);
      const name = draftName(entry, key);
      const old = slot.querySelector(":scope > form");
      if (old) return old.querySelector("textarea").focus();
      const form = answer((body) => start(entry, line, body), () => close(), {
        page, name, label: `Your comment on line ${line.after ?? line.before}`, word: "Start a thread",
        also: () => [
          line.after === null ? null : suggestButton(line.text, () => form.querySelector("textarea")),
          h("button", { type: "button", onclick: () => close() }, "Cancel"),
        ],
      });
      const close = () => {
        form.remove();
        file.rows.get(key)?.querySelector(".line-button:last-of-type")?.focus({ preventScroll: true });
      };
      form.addEventListener("keydown", (event) => {
        if (event.key !== "Escape") return;
        event.preventDefault();
        close();
      });
      slot.append(form);
      file.settle(key);
      if (focused) form.querySelector("textarea").focus();
      return form;
    }

    return {
      count: file.count,
      begin: () => file.rows.clear(),
      after(row, line) {
        const key = keyOf(line);
        file.rows.set(key, row);
        if (start && !line.expanded && (!addedOnly || line.kind === "added")) {
          const number = line.after ?? line.before;
          const cells = row.querySelectorAll(".number");
          const cell = line.kind === "removed" ? cells[0] : [...cells].at(-1);
          cell.append(h("button.line-button", { type: "button", tabindex: -1, "aria-label": `Comment on ${line.kind === "removed" ? "removed " : ""}line ${number}`, onclick: () => openForm(line, key, true) }));
          if (drafts.includes(draftName(entry, key))) openForm(line, key, false);
        }
        return file.slots.get(key) ?? null;
      },
      rest() {
        for (const [key, slot] of file.slots) if (!file.rows.has(key)) file.rest.append(slot);
        file.rest.hidden = !file.rest.querySelector(".thread");
        drafts = [];
        return file.rest;
      },
    };
  }

  function place(found) {
    const unresolved = new Map();
    for (const { thread, element } of found) {
      const file = thread.currentLine && files.get(thread.currentLine.newPath);
      if (file && !thread.isResolved) unresolved.set(file, (unresolved.get(file) ?? 0) + 1);
      if (file) file.put(keyOfThread(thread.currentLine), element);
      else if (thread.position && element.parentElement !== outdated) outdated.append(element);
    }
    for (const file of files.values()) {
      const number = unresolved.get(file) ?? 0;
      file.count.hidden = !number;
      file.count.textContent = `${number} unresolved`;
    }
    others.hidden = !outdated.childElementCount;
  }

  return { of, place, others };
}

const draftName = (entry, key) => `line ${key} ${entry.newPath}`;

/** Lets the arrow keys move between the buttons of the lines in `box`, of which one is in the order of the Tab key. */
export function moveByKeys(box) {
  const buttons = () => [...box.querySelectorAll(".line-button")];
  const choose = (button) => {
    for (const each of box.querySelectorAll(".line-button[tabindex='0']")) each.tabIndex = -1;
    if (button) button.tabIndex = 0;
    return button;
  };
  choose(box.querySelector(".line-button"));
  box.addEventListener("focusin", (event) => event.target.matches(".line-button") && choose(event.target));
  box.addEventListener("keydown", (event) => {
    if (!event.target.matches(".line-button") || event.ctrlKey || event.metaKey || event.altKey) return;
    const all = buttons();
    const to = { ArrowDown: all.indexOf(event.target) + 1, ArrowUp: all.indexOf(event.target) - 1, Home: 0, End: all.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    choose(all[Math.max(0, Math.min(to, all.length - 1))]).focus();
  });
}

/** Replaces the contents of an element and gives the focus back to the field in which somebody types. */
export function keepTyping(element, change) {
  const active = document.activeElement;
  const inside = element.contains(active);
  change();
  if (inside && active.isConnected && document.activeElement !== active) active.focus({ preventScroll: true });
}
