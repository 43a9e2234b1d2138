// A page on a screen that nobody operates: without controls, in steps of what fits, for days.

import { base } from "../address.js";

const RELOAD = 86_400_000;
const MIN_SECONDS = 5;
const MAX_SECONDS = 3600;

/** Seconds of each step, from `?screen=20` in the address; 0 where the page is not for a screen. */
export function screenSeconds(page) {
  if (!page.query.has("screen")) return 0;
  return Math.min(MAX_SECONDS, Math.max(MIN_SECONDS, Number.parseInt(page.query.get("screen"), 10) || 20));
}

/** Shows the children of `list` in steps; `items()` returns those that take part, in their order. Escape leaves the screen. */
export function rotate(page, seconds, list, items) {
  const root = document.documentElement;
  root.dataset.screen = "";
  let from = 0;
  const step = () => {
    const all = items();
    for (const each of all) each.hidden = false;
    const fitting = all.length ? countFitting(list, all) : 1;
    if (from >= all.length) from = 0;
    all.forEach((each, at) => (each.hidden = at < from || at >= from + fitting));
    from += fitting;
  };
  const timer = setInterval(step, seconds * 1000);
  // A new version of the pages is loaded once a day, when the service answers.
  const reloading = setInterval(() => fetch(`${base}/-/health`, { cache: "no-store" }).then(({ ok }) => ok && location.reload(), () => {}), RELOAD);
  const leave = (event) => {
    if (event.key === "Escape") page.go(location.pathname);
  };
  document.addEventListener("keydown", leave);
  addEventListener("resize", again);
  function again() {
    from = 0;
    step();
  }
  page.signal.addEventListener("abort", () => {
    clearInterval(timer);
    clearInterval(reloading);
    document.removeEventListener("keydown", leave);
    removeEventListener("resize", again);
    delete root.dataset.screen;
  });
  step();
}

/** How many of the elements are above the lower edge of the screen; at least one. */
function countFitting(list, all) {
  const top = list.getBoundingClientRect().top;
  const fitting = all.findIndex((each) => each.getBoundingClientRect().bottom - top > innerHeight - Math.max(top, 16) - 16);
  return fitting < 0 ? all.length : Math.max(1, fitting);
}
