/*
 * The shell: routes addresses to views, manages the session, renders what every page has.
 *
 * A view is a module in `views/` and a row of VIEWS below, with its operations in `../operations/VIEW.graphql`. It exports one function:
 *
 *     export async function open(page) {
 *       const { project } = await page.request("Issue", { path: page.where.path, iid: Number(page.where.number) });
 *       if (!project?.issue) throw page.missing("issue");
 *       page.title(`#${issue.iid} ${issue.title}`, [[project.fullPath, address(project.fullPath)]]);
 *       page.show(h("h1", null, issue.title), …);
 *     }
 *
 *     page.where             the named groups of the address (`path`, `number`, `section`, `sha`, `name`)
 *     page.query             its URLSearchParams
 *     page.signal            aborted on navigation; `request` and `follow` end with it
 *     page.opened            a promise that is fulfilled when `open` has returned; an event that comes before it waits for it (`renewal`)
 *     page.request(op, vars) the data of an operation of this view; throws GraphError if there is none
 *     page.mutate(op, vars)  the payload of a mutation of one field; throws user errors too
 *     page.follow(op, vars, {event, gap, over, until})   follows a subscription; await it before the first `request`, so that no event is missed.
 *                            Returns a promise of the position (`afterSeq`) at which it began, or of `null` if that is not known
 *                            It ends with the page, when the signal `until` is aborted, and when the stream completes and `over()`
 *     page.title(text, crumbs)   the title of the window, and the breadcrumbs: [[name, address], …]
 *     page.show(...nodes)    the content; its first `h1` gets the focus after a navigation
 *     page.announce(text)    announces a change to screen readers
 *     page.missing(noun)     the error to throw for something that does not exist
 *     page.forbidden(text)   the error to throw for a page that the viewer may not use
 *     page.go(address, {replace})   opens another page
 *     page.setAddress(address, {push})   changes the address of this page and stays there; `push`: as an entry of the browser's history
 *     page.renewViewer()     reads who is signed in again, after a change of the name
 *     page.reload()          opens the same page again, at the same place
 *
 * The shell shows errors that `open` throws. Elements are created with `h` of dom.js and the parts in parts.js. In an element with
 * `data-walk`, the keys j, k and the arrows move between the links with `data-item`. `/` focuses the field with `data-filter`,
 * or opens the box of find/box.js where there is none or it has the focus already; Ctrl+K always opens it.
 */

import { address, base, outside, pathOf } from "./address.js";
import { h, replace } from "./dom.js";
import * as graph from "./graph.js";
import * as keyboard from "./keyboard.js";
import { follow } from "./live.js";
import { avatar, icon, symbol } from "./parts.js";
import * as session from "./session.js";
import * as theme from "./themes.js";

/** Addresses below `/-/` are not those of projects. */
const PROJECT = "/(?!-/)(?<path>[^/]+/[^/]+)";
const VIEWS = [
  ["/", "wall"],
  ["/groups/(?<name>[^/]+)", "wall"],
  ["/groups/(?<name>[^/]+)/dashboard", "dashboard"],
  ["/groups/(?<name>[^/]+)/builds", "group/builds"],
  ["/groups/(?<name>[^/]+)/members", "group/members"],
  ["/groups/(?<name>[^/]+)/settings", "group/settings"],
  ["/groups/(?<name>[^/]+)/(?<section>issues|merge_requests)", "work/list"],
  ["/-/(?<section>issues|merge_requests)", "work/list"],
  ["/u/(?<name>[^/]+)", "user"],
  ["/-/sign_in", "sign_in"],
  ["/-/new_project", "new_project"],
  ["/-/new_group", "group/create"],
  ["/-/profile", "account/profile"],
  ["/-/admin", "admin/status"],
  ["/-/admin/users", "admin/users"],
  ["/-/admin/users/(?<name>[^/]+)", "admin/user"],
  ["/-/admin/runners", "admin/runners"],
  ["/-/admin/hooks", "admin/hooks"],
  ["/-/admin/hooks/(?<number>\\d+)", "admin/hook"],
  ["/-/admin/settings", "admin/settings"],
  [PROJECT, "project"],
  [`${PROJECT}/dashboard`, "dashboard"],
  [`${PROJECT}/(?<section>commits|builds|activity|stars)`, "project"],
  [`${PROJECT}/(?<section>issues|merge_requests)`, "work/list"],
  [`${PROJECT}/(?<section>issues|merge_requests)/(?:new|(?<number>\\d+)/edit)`, "work/edit"],
  [`${PROJECT}/issues/(?<number>\\d+)`, "issue"],
  [`${PROJECT}/merge_requests/(?<number>\\d+)(?:/(?<tab>commits|builds|changes))?`, "merge_request"],
  [`${PROJECT}/builds/(?<number>\\d+)`, "build"],
  [`${PROJECT}/builds/(?<number>\\d+)/artifacts(?:/browse/(?<at>[^]+?))?`, "artifact"],
  [`${PROJECT}/commits?/(?<sha>[0-9a-f]{7,64})`, "repository/commit"],
  [`${PROJECT}/labels`, "work/labels"],
  [`${PROJECT}/milestones`, "work/milestones"],
  [`${PROJECT}/milestones/(?<number>\\d+)`, "milestone"],
  [`${PROJECT}/snippets/(?<number>\\d+)`, "snippet"],
  [`${PROJECT}/fork`, "new_project"],
  [`${PROJECT}/files(?:/(?<at>[^]*?))?`, "repository/files"],
  [`${PROJECT}/(?<act>new|edit|remove)_file(?:/(?<at>[^]*?))?`, "repository/change_file"],
  [`${PROJECT}/history/(?<at>[^]+?)`, "repository/history"],
  [`${PROJECT}/blame/(?<at>[^]+?)`, "repository/blame"],
  [`${PROJECT}/search`, "repository/search"],
  [`${PROJECT}/compare(?:/(?<range>[^]*?))?`, "repository/compare"],
  [`${PROJECT}/(?<kind>tree|blob)/(?<rest>[^]+?)`, "repository/other_addresses"],
  [`${PROJECT}/contributors`, "repository/contributors"],
  [`${PROJECT}/tags`, "repository/tags"],
  [`${PROJECT}/branches`, "repository/branches"],
  [`${PROJECT}/environments`, "environments"],
  [`${PROJECT}/snippets`, "snippets"],
  [`${PROJECT}/settings(?:/members)?`, "settings/members"],
  [`${PROJECT}/settings/general`, "settings/general"],
  [`${PROJECT}/settings/hooks`, "settings/hooks"],
  [`${PROJECT}/settings/hooks/(?<number>\\d+)`, "settings/hook"],
  [`${PROJECT}/settings/deploy_keys`, "settings/deploy_keys"],
  [`${PROJECT}/settings/variables`, "settings/variables"],
  [`${PROJECT}/settings/runners`, "settings/runners"],
  [`${PROJECT}/settings/triggers`, "settings/triggers"],
].map(([pattern, view]) => [new RegExp(`^${pattern}/?$`), view]);

const main = document.getElementById("main");
const progress = document.getElementById("progress");
let navigation = new AbortController();
let viewer = null;
const MAX_NUMBER = 2 ** 31 - 1;
/** The address of the page that is shown, without its fragment. */
let addressShown = null;
/** The reason for signing in again, shown once. */
let why = null;

function found(path) {
  for (const [pattern, view] of VIEWS) {
    const match = pattern.exec(path);
    // The service has no larger numbers, and would refuse them as invalid.
    if (Number(match?.groups?.number ?? 0) > MAX_NUMBER) return null;
    if (match) return { view, where: match.groups ?? {} };
  }
  return null;
}

/** Opens the page of the current address. `moved`: after a navigation, so that the new page gets the focus. */
async function open({ moved = false, scroll = 0 } = {}) {
  navigation.abort();
  const own = (navigation = new AbortController());
  const { signal } = own;
  const place = found(pathOf(location));
  addressShown = location.pathname + location.search;
  showLive(null);
  const working = setTimeout(() => {
    progress.hidden = false;
    main.setAttribute("aria-busy", "true");
    if (!main.childElementCount) replace(main, skeleton());
  }, 120);
  let opened;
  const page = pageOf(place, signal, moved, scroll, new Promise((resolve) => (opened = resolve)));
  try {
    if (!place) throw page.missing("page");
    const loading = import(`./views/${place.view}.js`);
    // Loaded concurrently with the viewer; errors are handled below.
    loading.catch(() => {});
    graph.documentOf(place.view).catch(() => {});
    if (place.view !== "sign_in" && !(await known(signal))) {
      await (await import("./views/sign_in.js")).open({ ...pageOf({ view: "sign_in", where: {} }, signal, moved, scroll, null), here: true, why });
      why = null;
      return;
    }
    await (await loading).open(page);
    opened();
  } catch (error) {
    if (signal.aborted) return;
    failed(page, error);
    end();
    // Its streams end, and it is not live.
    own.abort();
    if (own !== navigation) return;
    showLive(null);
    navigation = new AbortController();
    if (isUnreachable(error)) openWhenReached(navigation);
  } finally {
    clearTimeout(working);
    if (!signal.aborted) end();
  }
}

/** The page is no longer being loaded. */
function end() {
  progress.hidden = true;
  main.removeAttribute("aria-busy");
}

function pageOf(place, signal, moved, scroll, opened) {
  const view = place?.view;
  const streams = new Map();
  return {
    where: place?.where ?? {},
    query: new URLSearchParams(location.search),
    signal,
    opened,
    request: (operation, variables) => graph.request(view, operation, variables, { signal }),
    async mutate(operation, variables) {
      try {
        return await graph.mutate(view, operation, variables, { signal });
      } catch (error) {
        // What was typed is restored after signing in.
        if (error.code === "UNAUTHENTICATED" && !signal.aborted) signedOut();
        throw error;
      }
    },
    follow: (operation, variables, { event, gap = () => {}, over = () => false, until = signal }) => {
      const state = (word, status) => {
        if (signal.aborted) return;
        if (status === 401) signedOut();
        else showLive(["off", "waiting", "paused", "live"].find((each) => [...streams.set(operation, word).values()].includes(each)));
      };
      return follow(view, operation, variables, { event, gap, state, over }, AbortSignal.any([signal, until]));
    },
    title,
    show(...nodes) {
      if (signal.aborted) return;
      replace(main, nodes);
      // Tabs that do not fit are scrolled.
      main.querySelector(".tabs [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
      restoreScroll(scroll, signal);
      if (moved) focusHeading();
    },
    announce,
    missing: (noun) => new graph.GraphError("NOT_FOUND", `This ${noun} does not exist, or you may not see it.`),
    forbidden: (text) => new graph.GraphError("FORBIDDEN", text),
    go,
    setAddress(href, { push = false } = {}) {
      if (push) {
        history.replaceState({ scroll: scrollY }, "");
        history.pushState(null, "", href);
      } else history.replaceState(history.state, "", href);
      addressShown = location.pathname + location.search;
    },
    reload: () => open({ scroll: scrollY }),
    signedIn,
    async renewViewer() {
      viewer = null;
      await known(signal);
    },
    get viewer() {
      return viewer;
    },
  };
}

/** Whether the viewer is signed in; requested once for each token. */
async function known(signal) {
  if (!session.token()) return false;
  if (!viewer) {
    try {
      viewer = (await graph.request("shell", "Viewer", {}, { signal })).viewer;
    } catch (error) {
      if (error.code !== "UNAUTHENTICATED") throw error;
      session.end();
      why = ENDED;
      return false;
    }
    showAccount();
  }
  return true;
}

const HEADINGS = { NOT_FOUND: "Not found", FORBIDDEN: "Not allowed" };
const RETRY = 2000;

/** Whether a part of the page could not be loaded, as while the service starts again. Browsers name the failure of a module differently. */
const isUnreachable = (error) => error.code === "NETWORK" || (error instanceof TypeError && /dynamically imported module|importing a module/i.test(error.message));

/** Opens the page again when the service answers. */
async function openWhenReached({ signal }) {
  while (!signal.aborted) {
    await new Promise((go) => setTimeout(go, RETRY));
    const isReached = await fetch(`${base}/-/health`, { signal, cache: "no-store" }).then(({ ok }) => ok, () => false);
    if (isReached && !signal.aborted) return open({ moved: true });
  }
}

function failed(page, error) {
  if (error.code === "UNAUTHENTICATED") {
    signedOut();
    return;
  }
  const missing = error.code === "NOT_FOUND";
  const heading = HEADINGS[error.code] ?? "Something went wrong";
  const words = isUnreachable(error) ? "The service cannot be reached. This page opens as soon as it answers." : !(error instanceof graph.GraphError) ? "This page cannot be shown." : missing && !error.message.includes("does not exist") ? `${error.message} It does not exist, or you may not see it.` : error.message;
  if (!(error instanceof graph.GraphError) && !isUnreachable(error)) console.error(error);
  page.title(heading);
  page.show(
    h("div.message", { role: missing ? null : "alert" },
      h("h1", { tabindex: -1 }, heading),
      h("p", null, words),
      error.requestId && !missing ? h("p.quiet", null, "Request id in the log: ", h("code", null, error.requestId)) : null,
      h("p.actions", null,
        HEADINGS[error.code] ? null : h("button.primary", { type: "button", onclick: () => open() }, "Try again"),
        h("a.button", { href: address("") }, "All projects"))));
}

// What every page has.

function title(text, crumbs = []) {
  document.title = text ? `${text} · Forgefront` : "Forgefront";
  replace(document.getElementById("crumbs"), h("ol", null, crumbs.map(([name, href]) => h("li", null, h("a", { href }, name)))));
}

function announce(text) {
  const said = document.getElementById("said");
  said.textContent = "";
  // Repeating the same text must be announced again.
  requestAnimationFrame(() => (said.textContent = text));
}

const LIVE = { live: ["Live", "Changes appear as they happen."], waiting: ["Reconnecting…", "Trying to reach the service again."], paused: ["Paused", "Other windows of this browser show changes as they happen. This one does when it has the focus."], off: ["Not live", "Reload to see changes."] };

function showLive(word) {
  const element = document.getElementById("live");
  element.hidden = !word;
  if (!word) return;
  element.dataset.state = word;
  element.textContent = LIVE[word][0];
  element.title = LIVE[word][1];
}

function showAccount() {
  const element = document.getElementById("account");
  if (!viewer) {
    replace(element);
    return;
  }
  const mine = (section, name, words) => h("a.quiet-button.button.mine", { href: address("-", section), title: words, "aria-label": words }, name === "OPENED" ? symbol(name, "").firstChild : icon(name));
  replace(element,
    viewer.isAdmin ? mine("admin", "sliders", "Administration") : null,
    mine("issues", "OPENED", "Your issues"), mine("merge_requests", "merge", "Your merge requests"),
    h("a.who", { href: address("u", viewer.username), title: `${viewer.name} (${viewer.username})` }, avatar(viewer), h("span.who-name", null, viewer.name)),
    h("button.quiet-button", { type: "button", id: "sign-out", title: "Sign out", "aria-label": "Sign out", onclick: signOut }, icon("out"), h("span", null, "Sign out")));
}

function skeleton() {
  return h("div.skeleton", { role: "status", "aria-label": "Loading" }, h("div.bone.wide"), Array.from({ length: 6 }, () => h("div.bone")));
}

/** Milliseconds in which a page that is opened again may grow to the height that it had. */
const MAX_GROWING = 5000;

/** Scrolls to where the reader was; again when the page grows, because parts of it arrive later. Ends as soon as the reader moves. */
function restoreScroll(scroll, signal) {
  scrollTo(0, scroll);
  const isThere = () => scrollY >= Math.floor(scroll);
  if (isThere()) return;
  const end = new AbortController();
  const growth = new ResizeObserver(() => {
    scrollTo(0, scroll);
    if (isThere()) end.abort();
  });
  end.signal.addEventListener("abort", () => growth.disconnect());
  const until = AbortSignal.any([end.signal, signal, AbortSignal.timeout(MAX_GROWING)]);
  until.addEventListener("abort", () => end.abort());
  for (const name of ["wheel", "touchstart", "pointerdown", "keydown"]) addEventListener(name, () => end.abort(), { signal: until, passive: true });
  growth.observe(main);
}

function focusHeading() {
  const heading = main.querySelector("h1");
  if (!heading) return;
  heading.tabIndex = -1;
  heading.focus({ preventScroll: true });
}

// Signing in and out.

async function signedIn(token, options) {
  session.begin(token, options);
  viewer = null;
  if (pathOf(location) === "/-/sign_in") go(address(""), { replace: true });
  else await open({ moved: true });
}

const ENDED = "You are no longer signed in: the session expired, or the token was reset.";

function signedOut() {
  session.end();
  viewer = null;
  why = ENDED;
  showAccount();
  open();
}

async function signOut() {
  // What is typed is not stored any more.
  navigation.abort();
  const fromProvider = session.isFromProvider();
  session.end();
  session.removeDrafts();
  viewer = null;
  showAccount();
  let to = null;
  try {
    if (fromProvider) to = outside((await graph.request("shell", "ProviderSignOut")).frontPage.openIdSignOutUrl);
    to ??= (await graph.request("shell", "FrontPage")).frontPage.afterSignOutPath;
  } catch {
    // Falls back to the sign-in page.
  }
  if (to) location.assign(to);
  else go(address("-", "sign_in"));
}

// Navigation.

function go(href, { replace: instead = false } = {}) {
  if (instead) history.replaceState(null, "", href);
  else {
    history.replaceState({ scroll: scrollY }, "");
    history.pushState(null, "", href);
  }
  open({ moved: true });
}

document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href]");
  if (!link || event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const url = new URL(link.href);
  if (url.origin !== location.origin || link.target || !(url.pathname + "/").startsWith(`${base}/`)) return;
  if (url.hash && url.pathname === location.pathname && url.search === location.search) {
    history.replaceState({ scroll: scrollY }, "");
    return;
  }
  if (!found(pathOf(url))) return;
  event.preventDefault();
  go(url.href);
});

history.scrollRestoration = "manual";
// A reload, and Back from another site, open the page where it was left.
addEventListener("pagehide", () => history.replaceState({ ...history.state, scroll: scrollY }, ""));
addEventListener("popstate", ({ state }) => {
  if (addressShown !== location.pathname + location.search) open({ moved: true, scroll: state?.scroll ?? 0 });
  // A step between fragments of the page.
  else if (state) scrollTo(0, state.scroll);
});
session.onChange(() => {
  viewer = null;
  showAccount();
  open();
});

theme.button(document.getElementById("theme"));
keyboard.begin(document.getElementById("help"), document.getElementById("keys"), { home: () => go(address("")), up, find, issues: () => go(address("-", "issues")), requests: () => go(address("-", "merge_requests")) });
document.getElementById("find").addEventListener("click", find);

/** Opens the search box, for the project of the page if it has one. */
function find() {
  if (!viewer) return false;
  import("./find/box.js").then(({ openBox }) => openBox(found(pathOf(location))?.where.path ?? null, go, navigation.signal));
  return true;
}

/** Goes up: from a page to its project, from a project to all projects. */
function up() {
  const above = [...document.querySelectorAll("#crumbs a")].filter((each) => each.pathname !== location.pathname);
  go(above.length ? above.at(-1).href : address(""));
}

open({ scroll: history.state?.scroll ?? 0 });
