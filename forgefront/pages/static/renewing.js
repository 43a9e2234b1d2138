// Pages that are read anew when something happened, without taking from their reader what is under the hand.

const PAUSE = 400;
const LATER = 5000;

/** Gives a function that has `renew` run soon: once for many calls, and again later where it failed. */
export function renewal(page, renew) {
  let waiting = null;
  const soon = (pause = PAUSE) => {
    waiting ??= setTimeout(async () => {
      waiting = null;
      if (page.signal.aborted) return;
      try {
        await renew();
      } catch (error) {
        if (error.name !== "AbortError") soon(LATER);
      }
    }, pause);
  };
  return () => soon();
}

/** Runs `look` every so many milliseconds while the page is open and seen, for what is no event. */
export function watch(page, every, look) {
  const timer = setInterval(() => document.hidden || look().catch(() => {}), every);
  page.signal.addEventListener("abort", () => clearInterval(timer));
}

/** Changes what is in an element; the link or button in it that had the focus has it again when it was made anew. */
export function keepFocus(element, change) {
  const active = document.activeElement;
  const here = element.contains(active) ? active.getAttribute("href") ?? active.textContent : null;
  change();
  if (here === null || element.contains(document.activeElement)) return;
  [...element.querySelectorAll("a[href], button, summary")]
    .find((each) => (each.getAttribute("href") ?? each.textContent) === here)
    ?.focus({ preventScroll: true });
}
