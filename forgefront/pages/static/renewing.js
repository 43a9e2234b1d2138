// Reloads the data of a page after events, without moving the focus of its reader.

import { h } from "./dom.js";

const PAUSE = 400;
const LATER = 5000;

/**
 * Returns a debounced function that runs `renew` soon, and again later if it failed. While the page is being opened it waits, so that what
 * was read before the event is not shown after what is read because of it.
 */
export function renewal(page, renew, prompt = PAUSE) {
  let waiting = null;
  /** The last run. They follow each other, so that an earlier answer is not shown after a later one. */
  let running = null;
  const soon = (pause = prompt) => {
    waiting ??= setTimeout(async () => {
      await Promise.allSettled([page.opened, running]);
      waiting = null;
      if (page.signal.aborted) return;
      try {
        running = renew();
        await running;
      } catch (error) {
        if (error.code === "NOT_FOUND") showMissing();
        else if (error.name !== "AbortError") soon(LATER);
      }
    }, pause);
  };
  return () => soon();
}

/** Says that what the page shows is no longer at its address. What is typed stays. */
function showMissing() {
  const main = document.getElementById("main");
  if (!main.querySelector(".moved-note"))
    main.prepend(h("p.draft-note.moved-note", { role: "status" }, "This was moved or deleted, or you may not see it any more. The page no longer changes."));
}

/** Runs `look` at an interval in milliseconds while the page is open and visible, for changes without events. */
export function watch(page, every, look) {
  const timer = setInterval(() => document.hidden || look().catch(() => {}), every);
  page.signal.addEventListener("abort", () => clearInterval(timer));
}

/** Renews a page each minute, for changes without events: descriptions that others edit, and mentions of other places. */
export const renewSlowly = (page, soon) => watch(page, 60_000, async () => soon());

/** Changes the contents of an element and restores the focus to the same link or button. */
export function keepFocus(element, change) {
  const active = document.activeElement;
  const here = element.contains(active) ? keyOf(active) : null;
  change();
  if (!here || element.contains(document.activeElement)) return;
  [...element.querySelectorAll("a[href], button, summary, input, select")]
    .find((each) => keyOf(each) === here)
    ?.focus({ preventScroll: true });
}

/**
 * Returns the focus that a change of the page or a disabled control has taken: to `active`, which had it, to what has its place now, or
 * to the heading.
 */
export function focusAgain(active) {
  if (document.activeElement && document.activeElement !== document.body) return;
  const main = document.getElementById("main");
  const again = active.isConnected ? active : [...main.querySelectorAll("textarea, a[href], button, summary")].find((each) => keyOf(each) === keyOf(active));
  const heading = main.querySelector("h1");
  if (!again && heading) heading.tabIndex = -1;
  (again ?? heading ?? main).focus({ preventScroll: true });
}

const keyOf = (element) => element.id || (element.getAttribute("href") ?? element.ariaLabel ?? element.textContent);
