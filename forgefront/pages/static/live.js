// Follows a subscription as Server-Sent Events, read with `fetch`, since EventSource cannot send the token. After a disconnect it
// resumes from the last event id. It is closed while the tab is hidden, and while other windows use the connections of the browser.

import { documentOf, post } from "./graph.js";
import { retryAfter } from "./retry_after.js";
import * as session from "./session.js";
import { allowed, count, mayStream } from "./stream_limits.js";

const FIRST_WAIT = 500;
const MAX_WAIT = 30_000;
/** Milliseconds for which a page waits for a stream before it reads without it. */
const MAX_OPENING = 1_500;

/**
 * Calls `handlers.event(data)` for each event, `handlers.gap()` when events may have been missed, so that everything must be read
 * again, and `handlers.state(word)` with `live`, `waiting` (for the service to return), `paused` or `off` (the service refused).
 * A stream that has ended is opened again unless `handlers.over()`.
 * Returns a promise of the position at which the stream was opened, to be awaited before what it changes is read; of `null` when the
 * first attempt failed or takes long. A stream that is opened after that reports a gap.
 */
export function follow(view, operationName, variables, handlers, signal) {
  let after = null;
  let connection = null;
  let wait = FIRST_WAIT;
  let isAwaited = true;
  let resolve;
  const open = new Promise((done) => (resolve = done));
  const opening = setTimeout(opened, MAX_OPENING);

  function opened(position = null) {
    clearTimeout(opening);
    isAwaited = false;
    resolve(position);
  }

  async function run() {
    while (!signal.aborted) {
      // As in a tab that was opened in the background.
      if (!mayStream()) {
        opened();
        if (!document.hidden) handlers.state("paused");
        await allowed(signal);
        if (signal.aborted) break;
      }
      connection = new AbortController();
      const stop = AbortSignal.any([signal, connection.signal]);
      let pause = null;
      try {
        pause = await once(stop);
      } catch {
        // The connection was lost, or the tab closed it.
      }
      if (signal.aborted || pause === "off" || (pause === null && handlers.over?.())) break;
      if (!connection.signal.aborted) {
        handlers.state("waiting");
        opened();
        await sleep(Math.max(pause ?? 0, wait * (0.5 + Math.random())), signal);
        wait = Math.min(wait * 2, MAX_WAIT);
      }
    }
    opened();
  }

  async function once(stop) {
    const sent = after === null ? variables : { ...variables, afterSeq: after };
    const response = await post(await documentOf(view), operationName, sent, { signal: stop, accept: "text/event-stream" });
    if (!response.ok || !response.headers.get("Content-Type")?.startsWith("text/event-stream")) {
      if (response.status >= 500 || response.status === 429) return retryAfter(response.headers) * 1000;
      handlers.state("off", response.status);
      return "off";
    }
    if (!isAwaited && after === null) handlers.gap();
    handlers.state("live");
    opened(response.headers.get("Last-Event-ID"));
    for await (const event of events(response.body)) {
      wait = FIRST_WAIT;
      // An id without an event reports the position of the stream.
      if (event.id) after = event.id;
      if (event.kind === "complete") break;
      if (event.kind !== "next") continue;
      const { data, errors } = JSON.parse(event.data);
      if (data) handlers.event(data);
      // The events after the last one are no longer there, so everything is read again.
      else if (errors?.some((error) => error.extensions?.code === "BAD_REQUEST")) after = null;
    }
    return null;
  }

  if (session.token()) {
    const release = count(() => connection?.abort());
    signal.addEventListener("abort", release);
    run().finally(release);
  } else opened();
  return open;
}

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
    const done = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, milliseconds);
    signal.addEventListener("abort", done);
  });
