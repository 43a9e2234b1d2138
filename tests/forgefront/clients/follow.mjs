// Follows builds as an application does, by npm's graphql-sse or graphql-ws with their own retries: `node follow.mjs sse|ws URL TOKEN`.
// Prints the id of the build of each event on a line of its own; ends, with 1, when the client gives up.
import { createClient as createSseClient } from "graphql-sse";
import { createClient as createSocketClient } from "graphql-ws";
import WebSocket from "ws";

const [kind, url, token] = process.argv.slice(2);
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

const client = kind === "sse" ? sse() : sockets();
for await (const { data, errors } of client.iterate({ query, variables })) {
  if (errors) throw new Error(JSON.stringify(errors));
  variables.after = data.buildChanged.seq;
  console.log(data.buildChanged.build.databaseId);
}
throw new Error("the client took the subscription for ended");
