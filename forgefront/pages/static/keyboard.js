// Keyboard shortcuts, and the dialog that lists them.

import { h, replace } from "./dom.js";

const KEYS = [
  ["/", "Focus the filter of the page, or find"],
  ["Ctrl+K", "Find projects, people, issues and more"],
  ["j k", "Next, previous"],
  ["← ↑ ↓ →", "Move between tiles"],
  ["Enter", "Open"],
  ["v", "Mark the file of a merge request as viewed"],
  ["s", "All changes of a merge request, or those since your last visit"],
  ["↑ ↓ Enter", "Move between changed lines; comment on one"],
  ["u", "Up to the project, or to all projects"],
  ["w", "All projects"],
  ["i m", "Your issues, your merge requests"],
  ["Esc", "Leave the filter, or close this dialog"],
  ["?", "This help"],
];

export function begin(dialog, button, { home, up, find, issues, requests }) {
  replace(dialog,
    h("h2", { id: "help-title" }, "Keys"),
    h("dl.keys", null, KEYS.map(([keys, what]) => [h("dt", null, keys.split(" ").map((key) => h("kbd", null, key))), h("dd", null, what)])),
    h("form", { method: "dialog", onsubmit: (event) => (event.preventDefault(), dialog.close()) }, h("button.primary", { autofocus: true }, "Close")));
  const help = () => dialog.showModal();
  button.addEventListener("click", help);
  const acts = { "?": help, "/": () => filter() || find(), j: () => walk(1), k: () => walk(-1), u: up, w: home, i: issues, m: requests };
  document.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k" && !event.altKey && !event.shiftKey && !document.querySelector("dialog[open]")) {
      if (find()) event.preventDefault();
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || document.querySelector("dialog[open]")) return;
    if (event.target.closest?.("input, textarea, select")) {
      if (event.key === "Escape") event.target.blur();
      else if (event.key === "ArrowDown" && event.target.matches("[data-filter]")) {
        event.preventDefault();
        walk(1);
      }
      return;
    }
    const act = acts[event.key] ?? (event.key.startsWith("Arrow") ? () => step(event.key.slice(5)) : null);
    if (act && act() !== false) event.preventDefault();
  });
}

const items = () => [...document.querySelectorAll("[data-walk] [data-item]")].filter((each) => each.offsetParent !== null);

function filter() {
  const field = [...document.querySelectorAll("[data-filter]")].find((each) => each.checkVisibility());
  field?.focus();
  field?.select();
  return Boolean(field);
}

function walk(by) {
  const all = items();
  const at = all.indexOf(document.activeElement);
  return reach(at < 0 ? (by > 0 ? all[0] : all.at(-1)) : all[at + by]);
}

/** Moves the focus to the nearest item in a direction; outside a list, arrow keys scroll. */
function step(direction) {
  const all = items();
  const here = document.activeElement;
  if (!all.includes(here)) return false;
  const from = middle(here);
  const [along, across, sign] = { Left: ["x", "y", -1], Right: ["x", "y", 1], Up: ["y", "x", -1], Down: ["y", "x", 1] }[direction];
  let best = null;
  for (const each of all) {
    const to = middle(each);
    const far = (to[along] - from[along]) * sign;
    if (far <= 4) continue;
    const distance = far + 3 * Math.abs(to[across] - from[across]);
    if (!best || distance < best.distance) best = { each, distance };
  }
  return best ? reach(best.each) : direction === "Up" || direction === "Down";
}

/** The centre of the tile or row of a link. */
function middle(link) {
  const box = (link.closest("[data-box]") ?? link).getBoundingClientRect();
  return { x: box.left + box.width / 2, y: box.top + box.height / 2 };
}

function reach(link) {
  link?.focus();
  link?.closest("[data-box]")?.scrollIntoView({ block: "nearest" });
  return Boolean(link);
}
