// The way to the graph: one answer as JSON, the events of a subscription as text/event-stream, which a page reads with fetch.
import { GraphQLError, getOperationAST } from "graphql";

export const BASE = document.currentScript.src;
const GRAPHQL = new URL("../../graphql", BASE);
const AGAIN_MS = 2000;
/** Statuses that pass: of a service that is being started again, or that still counts the connection that was cut. */
const PASSING = [429, 502, 503, 504];

/** The session of the other pages, by their own script: who is signed in there is signed in here. */
export const session = import(new URL("../pages/session.js", BASE));

/** The limit of the open streams of all windows of the browser, by the pages' own script. */
const limits = import(new URL("../pages/stream_limits.js", BASE));

export async function ask(token, request, { headers, accept, signal } = {}) {
  return fetch(GRAPHQL, {
    method: "POST",
    headers: { "Content-Type": "application/json", Accept: accept ?? "application/graphql-response+json", "PRIVATE-TOKEN": token, ...headers },
    body: JSON.stringify(request),
    signal,
  });
}

/** A fetcher as GraphiQL wants it. What stands in its headers editor goes before the token. */
export function fetcherFor(token) {
  return (request, { headers, documentAST } = {}) => {
    const operation = documentAST && getOperationAST(documentAST, request.operationName ?? undefined);
    if (operation?.operation === "subscription") return { subscribe: (observer) => follow(token, request, headers, observer) };
    return ask(token, request, { headers }).then((answer) => answer.json());
  };
}

/**
 * Passes each event to an observer until it unsubscribes or the stream completes; an interrupted stream is resumed. It is closed
 * while the tab is hidden, and while other windows use the connections of the browser.
 */
function follow(token, request, headers, observer) {
  const stopping = new AbortController();
  let connection = null;
  let last = null;
  let begun = false;

  /** Whether the stream is over. */
  async function once(signal) {
    const answer = await ask(token, request, {
      headers: last === null ? headers : { ...headers, "Last-Event-ID": last },
      accept: "text/event-stream",
      signal,
    });
    if (begun && PASSING.includes(answer.status)) return false;
    if (!answer.headers.get("Content-Type")?.startsWith("text/event-stream")) {
      observer.next(await answer.json());
      return true;
    }
    begun = true;
    // Without a position, events between the opening of the stream and its first byte would be lost if it breaks meanwhile.
    last ??= answer.headers.get("Last-Event-ID");
    let text = "";
    for await (const piece of pieces(answer.body.pipeThrough(new TextDecoderStream()))) {
      text += piece;
      const blocks = text.split("\n\n");
      text = blocks.pop();
      for (const block of blocks) {
        const fields = Object.fromEntries(block.split("\n").map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 1).trim()]));
        if (fields.event === "complete") return true;
        if (fields.id) last = fields.id;
        if (fields.event === "next") observer.next(JSON.parse(fields.data));
      }
    }
    return false;
  }

  /** As `once`; a connection that cannot be made again, breaks, or is closed for other windows is one to be made again. */
  const over = (signal) =>
    once(signal).catch((error) => {
      if (!stopping.signal.aborted && (signal.aborted || (begun && error instanceof TypeError))) return false;
      throw error;
    });

  (async () => {
    const { allowed, count, mayStream } = await limits;
    const release = count(() => connection?.abort());
    stopping.signal.addEventListener("abort", release);
    try {
      for (;;) {
        if (!mayStream()) await allowed(stopping.signal);
        if (stopping.signal.aborted) return;
        connection = new AbortController();
        if (await over(AbortSignal.any([stopping.signal, connection.signal]))) break;
        if (!connection.signal.aborted) await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
      }
      observer.complete();
    } catch (error) {
      if (!stopping.signal.aborted) observer.error(new GraphQLError(`The stream ended: ${error.message}`));
    } finally {
      release();
    }
  })();
  return { unsubscribe: () => stopping.abort() };
}

// Not every browser can iterate a stream.
async function* pieces(stream) {
  const reader = stream.getReader();
  for (let read = await reader.read(); !read.done; read = await reader.read()) yield read.value;
}
