// The small components of all pages: states, people, times, lists, messages.

import { address } from "./address.js";
import { h, s } from "./dom.js";

// States, shown by a colour, a shape and a word.

const STATES = {
  SUCCESS: ["passed", "M8 .8a7.2 7.2 0 1 0 0 14.4A7.2 7.2 0 0 0 8 .8Zm3.9 5.3-4.6 5a.9.9 0 0 1-1.3 0L4 9.1a.9.9 0 1 1 1.3-1.3l1.3 1.4 4-4.3a.9.9 0 1 1 1.3 1.2Z"],
  FAILED: ["failed", "M5 .8h6L15.2 5v6L11 15.2H5L.8 11V5Zm.7 3.7a.9.9 0 0 0-1.2 1.2L6.8 8l-2.3 2.3a.9.9 0 0 0 1.2 1.2L8 9.2l2.3 2.3a.9.9 0 0 0 1.2-1.2L9.2 8l2.3-2.3a.9.9 0 0 0-1.2-1.2L8 6.8Z"],
  RUNNING: ["running", "M8 .8a7.2 7.2 0 1 1-6.6 4.3l1.7.7A5.4 5.4 0 1 0 8 2.6Zm-1.5 4.4 4.4 2.8-4.4 2.8Z"],
  PENDING: ["waiting", "M8 .8a7.2 7.2 0 1 0 0 14.4A7.2 7.2 0 0 0 8 .8Zm0 1.8a5.4 5.4 0 1 1 0 10.8A5.4 5.4 0 0 1 8 2.6Zm-.9 2v3.8l2.7 2.2 1.1-1.4-2-1.6v-3Z"],
  CANCELED: ["canceled", "M8 .8a7.2 7.2 0 1 0 0 14.4A7.2 7.2 0 0 0 8 .8Zm0 1.8c1.2 0 2.2.4 3.1 1L3.6 11A5.4 5.4 0 0 1 8 2.6Zm4.4 2.3A5.4 5.4 0 0 1 5 12.4Z"],
  MANUAL: ["manual", "M8 .8a7.2 7.2 0 1 0 0 14.4A7.2 7.2 0 0 0 8 .8Zm0 1.8a5.4 5.4 0 1 1 0 10.8A5.4 5.4 0 0 1 8 2.6ZM6.500 5v6l4.800-3Z"],
  NONE: ["no builds", "M2 7.1h3v1.8H2Zm4.5 0h3v1.8h-3Zm4.5 0h3v1.8h-3Z"],
  OPENED: ["open", "M8 .8a7.2 7.2 0 1 0 0 14.4A7.2 7.2 0 0 0 8 .8Zm0 1.8a5.4 5.4 0 1 1 0 10.8A5.4 5.4 0 0 1 8 2.6Zm0 3.2a2.2 2.2 0 1 0 0 4.4 2.2 2.2 0 0 0 0-4.4Z"],
  CLOSED: ["closed", "M8 .8a7.2 7.2 0 1 0 0 14.4A7.2 7.2 0 0 0 8 .8Zm0 1.8a5.4 5.4 0 1 1 0 10.8A5.4 5.4 0 0 1 8 2.6ZM5 7.1v1.8h6V7.1Z"],
  MERGED: ["merged", "M4.5 1a2.2 2.2 0 0 0-.9 4.2v5.6a2.2 2.2 0 1 0 1.8 0V8.3c1.2 1.4 2.8 1.6 4.3 1.7a2.2 2.2 0 1 0 0-1.8C7.500 8 6 7.500 5.500 5.100A2.200 2.200 0 0 0 4.500 1Z"],
};
STATES.REOPENED = STATES.OPENED;
STATES.LOCKED = STATES.MERGED;

export const labelOf = (state) => (STATES[state] ?? STATES.NONE)[0];

const glyph = (path, attributes) => s("svg.glyph", { viewBox: "0 0 16 16", width: 16, height: 16, "aria-hidden": "true", ...attributes }, s("path", { d: path }));

/** A symbol alone, with its word for screen readers; `label` replaces the word. */
export const symbol = (state, label = labelOf(state)) =>
  h("span.symbol", { "data-state": state, title: label }, glyph((STATES[state] ?? STATES.NONE)[1]), h("span.unseen", null, label));

/** A symbol and its word. */
export const badge = (state, word = labelOf(state)) =>
  h("span.badge", { "data-state": state }, glyph((STATES[state] ?? STATES.NONE)[1]), word);

const ICONS = {
  branch: "M4.500 1.200a2 2 0 0 0-.8 3.800v6a2 2 0 1 0 1.600 0V9.600c.5-.4 1.200-.6 2.200-.7 2-.2 4.300-.7 4.700-3.400a2 2 0 1 0-1.600-.1c-.3 1.400-1.300 1.700-3.300 1.900-.7.1-1.400.2-2 .5V5a2 2 0 0 0-.8-3.800Z",
  clock: STATES.PENDING[1],
  copy: "M5 1.500h8.500V11H11v3.500H2.500V5H5Zm1.500 3.500H11v4.500h1V3H6.500ZM4 6.500V13h5.500V6.500Z",
  merge: STATES.MERGED[1],
  out: "M2 1.500h7v1.600H3.600v9.800H9v1.600H2ZM10.500 4.500 14.200 8l-3.700 3.500-1.100-1.200 1.600-1.500H6V7.200h5L9.400 5.700Z",
  sliders: "M1.500 4h5v1.600h-5ZM10 4h4.500v1.600H10ZM7.200 2.600H9.300V7H7.200ZM1.500 10.400h2.200v1.600H1.500ZM7.300 10.400h7.200v1.600H7.300ZM4.500 9h2.100v4.400H4.500Z",
  star: "M8 1.2 10 5.600l4.800.6-3.500 3.300.9 4.700L8 11.900l-4.200 2.300.9-4.700L1.200 6.200 6 5.600Z",
};
export const icon = (name) => glyph(ICONS[name]);

// People. Avatars of other services are not loaded: a request would reveal to them who reads these pages.

/** The initials of a person, coloured by name; `who` is `{username, name}`, or null with the name of a commit's author. */
export function avatar(who, name = who?.name ?? "?") {
  const initials = name.split(/[\s._-]+/).filter(Boolean).slice(0, 2).map((word) => [...word][0].toUpperCase()).join("");
  const hue = [...name].reduce((sum, letter) => (sum * 31 + letter.codePointAt(0)) % 8, 7);
  return h("span.avatar", { "data-hue": hue, "aria-hidden": "true" }, initials || "?");
}

/** Initials and a name, linked to the account if there is one. */
export const person = (who, name = who?.name ?? "unknown") =>
  h("span.person", null, avatar(who, name), who ? h("a", { href: address("u", who.username) }, name) : h("span", null, name));

// Times: relative to now, the exact one on hover.

const RELATIVE = new Intl.RelativeTimeFormat("en", { numeric: "auto" });
const UNITS = [["year", 31_536_000], ["month", 2_592_000], ["week", 604_800], ["day", 86_400], ["hour", 3600], ["minute", 60]];

function relative(then, now = Date.now()) {
  const seconds = (then - now) / 1000;
  const [unit, size] = UNITS.find(([, size]) => Math.abs(seconds) >= size) ?? [];
  return unit ? RELATIVE.format(Math.trunc(seconds / size), unit) : "just now";
}

/** "2 d 3 h", "2 h 5 min", "3 min 20 s", "3 min", "4 s". */
export function duration(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  const [hours, minutes, rest] = [Math.floor(whole / 3600), Math.floor((whole % 3600) / 60), whole % 60];
  const parts = (large, largeUnit, small, smallUnit) => (small ? `${large} ${largeUnit} ${small} ${smallUnit}` : `${large} ${largeUnit}`);
  if (hours >= 48) return parts(Math.floor(hours / 24), "d", hours % 24, "h");
  if (hours) return parts(hours, "h", minutes, "min");
  return minutes ? parts(minutes, "min", rest, "s") : `${whole} s`;
}

/** The date and the time in the zone of the reader, which is named. */
export const exactly = (timestamp) => new Date(timestamp).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "long" });

/** "3 hours ago", updated while it is shown. */
export function ago(timestamp) {
  const then = new Date(timestamp).getTime();
  return h("time", { datetime: timestamp, title: exactly(timestamp), "data-ago": then }, relative(then));
}

/** The duration of something that still runs, updated while it is shown. */
export function since(timestamp) {
  const then = new Date(timestamp).getTime();
  return h("span.counting", { "data-since": then }, duration((Date.now() - then) / 1000));
}

setInterval(() => {
  const now = Date.now();
  for (const element of document.querySelectorAll("[data-since]")) element.textContent = duration((now - element.dataset.since) / 1000);
  for (const element of document.querySelectorAll("[data-ago]")) {
    const text = relative(Number(element.dataset.ago), now);
    if (element.textContent !== text) element.textContent = text;
  }
}, 1000);

/** How long checks took, or have taken so far; null if unknown. */
export function lasted({ state, startedAt, durationSeconds }) {
  if (state === "RUNNING" && startedAt) return h("span.lasted", { title: "running for" }, icon("clock"), since(startedAt));
  if (durationSeconds === null || durationSeconds === undefined) return null;
  return h("span.lasted", { title: "took" }, icon("clock"), duration(durationSeconds));
}

/** Text beside a button that copies it. */
export function copyable(text) {
  const shown = h("code", { tabindex: 0 }, text);
  return h("div.clone", null, shown, copyButton(shown, "Copy it"));
}

/** A button that copies the text of an element. */
export function copyButton(shown, label) {
  const copy = h("button", { type: "button", title: label, "aria-label": label, onclick: take }, icon("copy"), h("span", null, "Copy"));
  async function take() {
    try {
      await navigator.clipboard.writeText(shown.textContent);
      copy.lastChild.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(shown);
      copy.lastChild.textContent = "Selected";
    }
    setTimeout(() => (copy.lastChild.textContent = "Copy"), 2000);
  }
  return copy;
}

// Lists and messages.

/** Names of failed checks; those beyond `shown` are counted. */
export function failing(checks, total, shown = 3) {
  const rest = Math.max(total, checks.length) - Math.min(checks.length, shown);
  return h("ul.failing", { "aria-label": "Failing checks" },
    checks.slice(0, shown).map((check) => h("li", { title: check.stage ? `${check.stage}: ${check.name}` : check.name }, check.name)),
    rest > 0 ? h("li.rest", null, `+${rest}`) : null);
}

export const code = (text) => h("code", null, text);

export const empty = (title, ...more) => h("div.empty", null, h("h2", null, title), more.map((each) => h("p", null, each)));

/** A button that loads the next page of a connection, hidden when there is none. `load(after)` returns the next `pageInfo`; `continueAfter(pageInfo)` continues after another page. */
export function more(pageInfo, load, word = "Show more") {
  let cursor = pageInfo.endCursor;
  const button = h("button.more", { type: "button", hidden: !pageInfo.hasNextPage, onclick: async () => {
    // A button that is disabled would lose the focus.
    if (button.ariaBusy === "true") return;
    button.ariaBusy = "true";
    try {
      const next = await load(cursor);
      cursor = next.endCursor;
      // One that is hidden leaves the focus to the last row.
      if (document.activeElement === button && !next.hasNextPage) [...(button.previousElementSibling?.querySelectorAll("a[href]") ?? [])].at(-1)?.focus({ preventScroll: true });
      button.hidden = !next.hasNextPage;
      button.textContent = word;
    } catch (error) {
      if (error.name !== "AbortError") button.textContent = `${error.message} Try again`;
    } finally {
      button.ariaBusy = "false";
    }
  } }, word);
  button.continueAfter = (pageInfo) => {
    cursor = pageInfo.endCursor;
    button.hidden = !pageInfo.hasNextPage;
  };
  return button;
}

/** User-written text, in paragraphs; http and https URLs become links. */
export function prose(text) {
  const paragraphs = text.replace(/\r\n?/g, "\n").trim().split(/\n{2,}/);
  return h("div.prose", null, paragraphs.map((paragraph) => h("p", null, linked(paragraph))));
}

function linked(text) {
  const found = [];
  let from = 0;
  for (const match of text.matchAll(/\[([^\]\n]{1,200})\]\((https?:\/\/[^\s()<>]+)\)|https?:\/\/[^\s<>"')]+[^\s<>"').,;:!?]/g)) {
    found.push(text.slice(from, match.index), h("a", { href: match[2] ?? match[0], rel: "noopener noreferrer" }, match[1] ?? match[0]));
    from = match.index + match[0].length;
  }
  found.push(text.slice(from));
  return found;
}

/** A section of a page with a heading; `aside` is beside the heading. */
export const section = (title, aside, ...content) =>
  h("section.part", null, h("header.part-head", null, h("h2", null, title), aside), content);
