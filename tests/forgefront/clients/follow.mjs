// Follows builds as an application does, by npm's graphql-sse or graphql-ws with their own retries: `node follow.mjs sse|ws URL TOKEN`; or by
// the fetcher of GraphiQL: `node follow.mjs graphiql URL TOKEN FETCHER`. Prints the id of the build of each event on a line of its own; ends, with 1, when the client gives up.
import { createClient as createSseClient } from "graphql-sse";
import { createClient as createSocketClient } from "graphql-ws";
import { readFile } from "node:fs/promises";
import { parse } from "graphql";
import WebSocket from "ws";

const [kind, url, token, fetcher] = process.argv.slice(2);
const query = "subscription($after: String) { buildChanged(afterSeq: $after) { seq build { databaseId } } }";
const variables = { after: null };

function sse() {
  return createSseClient({
    url,
    headers: () => ({ "private-token": token, ...(variables.after && { "last-event-id": variables.after }) }),
    fetchFn: async (...request) => {
      const response = await fetch(...request);
      // Before the first event; later the events tell.
      variables.after ??= response.headers.get("last-event-id");
      return response;
    },
  });
}

function sockets() {
  return createSocketClient({
    url: url.replace("http", "ws"),
    webSocketImpl: WebSocket,
    // Alone it retries after a close, and gives up where no connection can be made.
    shouldRetry: () => true,
    connectionParams: { "PRIVATE-TOKEN": token },
    on: { connected: (_, payload) => (variables.after ??= payload.seq) },
  });
}

/** The fetcher as it is bundled, but that the page around it is made up. */
async function graphiql() {
  globalThis.document = { currentScript: { src: new URL("/-/graphiql/graphiql.js", url).href } };
  const limits = "Promise.resolve({ allowed: async () => {}, count: () => () => {}, mayStream: () => true })";
  const source = (await readFile(fetcher, "utf8"))
    .replace('from "graphql"', `from ${JSON.stringify(import.meta.resolve("graphql"))}`)
    .replace('import(new URL("../pages/stream_limits.js", BASE))', limits);
  const { fetcherFor, session } = await import(`data:text/javascript,${encodeURIComponent(source)}`);
  session.catch(() => {});
  return {
    iterate: async function* (request) {
      const results = [];
      let wake;
      const add = (result) => (results.push(result), wake?.());
      const { subscribe } = fetcherFor(token)(request, { documentAST: parse(request.query) });
      subscribe({ next: add, error: (error) => add({ errors: [String(error)] }), complete: () => add(null) });
      for (;;) {
        while (!results.length) await new Promise((resolve) => (wake = resolve));
        const result = results.shift();
        if (result === null) return;
        yield result;
      }
    },
  };
}

const client = { sse, ws: sockets, graphiql }[kind]();
for await (const { data, errors } of (await client).iterate({ query, variables })) {
  if (errors) throw new Error(JSON.stringify(errors));
  // What the fetcher sends again is up to the fetcher.
  if (kind !== "graphiql") variables.after = data.buildChanged.seq;
  console.log(data.buildChanged.build.databaseId);
}
throw new Error("the client took the subscription for ended");
