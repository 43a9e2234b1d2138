// Limits the open streams of all windows of a browser. It has six connections for a service that speaks HTTP/1.1, over all of its
// windows and tabs: when streams use all of them, no window can send a request. The windows report to each other by a BroadcastChannel
// how many streams they want. Those that had the focus last get theirs, the others pause.

const MAX_STREAMS = 4;
/** Milliseconds after which a hidden tab closes its streams. */
const HIDDEN = 5_000;
/** Milliseconds: the streams of a page are counted until the next page has opened its own, so that other windows do not open some between. */
const RELEASE = 1_000;
/** Milliseconds: a window repeats its report, since one that crashed does not report its end. */
const REPORT = 20_000;
const EXPIRY = 3 * REPORT;

const changes = new EventTarget();
const own = { id: `${Date.now()}-${Math.random()}`, focusedAt: Date.now(), streams: 0 };
/** The reports of the other windows, by their ids. */
const others = new Map();
let wanted = 0;
let isAway = document.hidden;
let isAllowed = true;
let channel = null;
let hiding = null;
let releasing = null;

/** Whether the streams of this window may be open. */
export const mayStream = () => isAllowed && !isAway;

/** Fulfilled when they may be open, or when the signal is aborted. */
export const allowed = (signal) =>
  new Promise((resolve) => {
    const listening = new AbortController();
    const done = () => (listening.abort(), resolve());
    changes.addEventListener("change", () => mayStream() && done(), { signal: listening.signal });
    signal.addEventListener("abort", done, { signal: listening.signal });
  });

/** Counts a stream of this window, and calls `pause` when it must close. Returns a function that ends both. */
export function count(pause) {
  const listening = new AbortController();
  changes.addEventListener("change", () => mayStream() || pause(), { signal: listening.signal });
  wanted += 1;
  update();
  return () => {
    if (listening.signal.aborted) return;
    listening.abort();
    wanted -= 1;
    clearTimeout(releasing);
    releasing = setTimeout(update, RELEASE);
  };
}

/** Whether requests share a connection, as in HTTP/2. The protocol of what came from a cache is empty. */
const isMultiplexed = () =>
  [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")].some(({ nextHopProtocol }) => /^h[23]/.test(nextHopProtocol));

function update() {
  const streams = isAway ? 0 : wanted;
  if (streams !== own.streams) {
    own.streams = streams;
    report();
  }
  allot();
}

/** Each window computes the same from the same reports: one whose streams do not fit beside those of windows before it pauses. */
function allot() {
  const oldest = Date.now() - EXPIRY;
  for (const [id, { reportedAt }] of others) if (reportedAt < oldest) others.delete(id);
  let free = MAX_STREAMS;
  for (const each of [...others.values(), own].sort((a, b) => b.focusedAt - a.focusedAt || (a.id < b.id ? -1 : 1))) {
    const fits = each.streams <= free || free === MAX_STREAMS;
    if (fits) free -= each.streams;
    if (each === own) isAllowed = fits || isMultiplexed();
  }
  changes.dispatchEvent(new Event("change"));
}

function report({ isNew = false } = {}) {
  channel?.postMessage({ ...own, isNew });
}

function openChannel() {
  channel = new BroadcastChannel("forgefront.streams");
  channel.onmessage = ({ data: { isNew, ...other } }) => {
    if (other.streams) others.set(other.id, { ...other, reportedAt: Date.now() });
    else others.delete(other.id);
    if (isNew) report();
    allot();
  };
  report({ isNew: true });
}

function focused() {
  own.focusedAt = Date.now();
  report();
  update();
}

addEventListener("focus", focused);
document.addEventListener("visibilitychange", () => {
  clearTimeout(hiding);
  if (document.hidden) {
    hiding = setTimeout(() => {
      isAway = true;
      update();
    }, HIDDEN);
  } else {
    isAway = false;
    focused();
  }
});
// Browsers may cache a page for back navigation, together with its connections and channels.
addEventListener("pagehide", () => {
  isAway = true;
  update();
  channel?.close();
  channel = null;
});
addEventListener("pageshow", () => {
  if (channel) return;
  isAway = document.hidden;
  others.clear();
  openChannel();
  focused();
});
setInterval(() => {
  if (own.streams) report();
  allot();
}, REPORT);
openChannel();
