// Follows a subscription as Server-Sent Events, read with `fetch`, since EventSource cannot send the token. Goes on after every break
// from the last number that came; a tab that nobody looks at gives its connection back.

import { documentOf, post } from "./graph.js";
import * as session from "./session.js";

const FIRST_WAIT = 500;
const LONGEST_WAIT = 30_000;
const HIDDEN = 5_000;
/** Milliseconds: a browser has six connections for one service, over all of its tabs. */

/**
 * `told.event(data)` for each event; `told.gap()` when some may have been missed, so that all is to be read anew; `told.state(word)`:
 * `live`, `waiting` (for the service to come back) or `off` (the service refused).
 * Gives a promise that is fulfilled when the stream is open, or could not be opened at once.
 */
export function follow(view, operationName, variables, told, signal) {
  let after = null;
  let connection = null;
  let wait = FIRST_WAIT;
  let everOpen = false;
  let hiding = null;
  let opened;
  const open = new Promise((resolve) => (opened = resolve));

  async function run() {
    while (!signal.aborted) {
      connection = new AbortController();
      const stop = AbortSignal.any([signal, connection.signal]);
      let pause = null;
      try {
        pause = await once(stop);
      } catch {
        // The connection broke, or was given back.
      }
      if (signal.aborted || pause === "off") break;
      if (connection.signal.aborted) await shown(signal);
      else {
        told.state("waiting");
        opened();
        await sleep(Math.max(pause ?? 0, wait * (0.5 + Math.random())), signal);
        wait = Math.min(wait * 2, LONGEST_WAIT);
      }
    }
    opened();
  }

  async function once(stop) {
    const asked = after === null ? variables : { ...variables, afterSeq: after };
    const response = await post(await documentOf(view), operationName, asked, { signal: stop, accept: "text/event-stream" });
    if (!response.ok || !response.headers.get("Content-Type")?.startsWith("text/event-stream")) {
      const retry = Number(response.headers.get("Retry-After")) * 1000;
      if (response.status >= 500 || response.status === 429) return retry;
      told.state("off", response.status);
      return "off";
    }
    if (everOpen && after === null) told.gap();
    everOpen = true;
    told.state("live");
    opened();
    for await (const event of events(response.body)) {
      wait = FIRST_WAIT;
      // Also without an event: then it says how far the stream has come.
      if (event.id) after = event.id;
      if (event.kind === "complete") break;
      if (event.kind !== "next") continue;
      const { data } = JSON.parse(event.data);
      if (data) told.event(data);
    }
    return null;
  }

  const look = () => {
    clearTimeout(hiding);
    if (document.hidden) hiding = setTimeout(() => connection?.abort(), HIDDEN);
  };
  document.addEventListener("visibilitychange", look, { signal });
  // A page that is left may be kept for the way back, and its connections with it, of which a browser has six for one service.
  addEventListener("pagehide", () => connection?.abort(), { signal });
  signal.addEventListener("abort", () => clearTimeout(hiding));
  if (session.token()) run();
  else opened();
  return open;
}

/** Fulfilled when the page is looked at again. */
const shown = (signal) =>
  new Promise((resolve) => {
    const look = () => document.hidden || resolve();
    document.addEventListener("visibilitychange", look, { signal });
    addEventListener("pageshow", look, { signal });
    signal.addEventListener("abort", resolve, { once: true });
  });

/** The events of a stream: `{kind, id, data}`. */
async function* events(body) {
  let text = "";
  for await (const piece of pieces(body)) {
    text += piece;
    const whole = text.split("\n\n");
    text = whole.pop();
    for (const block of whole) {
      const event = { kind: "message", id: null, data: "" };
      for (const line of block.split("\n")) {
        const [, name, value] = /^([a-z]*): ?(.*)$/.exec(line) ?? [];
        if (name === "event") event.kind = value;
        else if (name === "id") event.id = value;
        else if (name === "data") event.data += value;
      }
      yield event;
    }
  }
}

async function* pieces(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield value;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

const sleep = (milliseconds, signal) =>
  new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
