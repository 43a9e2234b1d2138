// Runs GraphQL operations, which are in files beside these (`operations/VIEW.graphql`).

import { base, files } from "./address.js";
import { retryAfter } from "./retry_after.js";
import * as session from "./session.js";

const documents = new Map();

const MAX_BODY_BYTES = 1024 * 1024;

/** `code` is a GraphQL error code, or NETWORK. `wait`: seconds until a retry, from Retry-After. `userErrors`: those of a mutation. */
export class GraphError extends Error {
  constructor(code, message, { status = 0, wait = null, requestId = null, userErrors = [] } = {}) {
    super(message);
    Object.assign(this, { code, status, wait, requestId, userErrors });
  }
}

/** The document of a view. */
export function documentOf(view) {
  if (!documents.has(view)) {
    const reading = fetch(`${files}operations/${view}.graphql`).then((response) => {
      if (!response.ok) throw new GraphError("NETWORK", "A part of this page could not be loaded.");
      return response.text();
    });
    reading.catch(() => documents.delete(view));
    documents.set(view, reading);
  }
  return documents.get(view);
}

/**
 * Runs an operation and returns its data, which may be partial. Throws GraphError when there is none.
 * `using` is a token that replaces the session's.
 */
export async function request(view, operationName, variables = {}, { signal, using } = {}) {
  const response = await post(await reached(documentOf(view)), operationName, variables, { signal, using });
  const body = await reached(response.json());
  const [first] = body.errors ?? [];
  const empty = !body.data || Object.values(body.data).every((each) => each === null);
  if (first && empty) throw refused(first, response);
  if (first) partial.set(body.data, refused(body.errors.find((each) => each.extensions?.code !== "FORBIDDEN") ?? first, response));
  return body.data;
}

const partial = new WeakMap();

/** The first error of an operation that returned data nevertheless, FORBIDDEN only if there is no other; undefined if there was none. */
export const errorIn = (data) => partial.get(data);

/** Runs a mutation of one field and returns its payload. Throws GraphError for GraphQL errors and user errors. */
export async function mutate(view, operationName, variables, options) {
  const [payload] = Object.values(await request(view, operationName, variables, options));
  const { userErrors = [] } = payload;
  if (userErrors.length) throw new GraphError(userErrors[0].code, userErrors[0].message, { userErrors });
  return payload;
}

/** The HTTP response to an operation, of any status. `accept` is text/event-stream for a stream. */
export async function post(query, operationName, variables, { signal, using, accept = "application/json" } = {}) {
  const token = using ?? session.token();
  const headers = { Accept: accept, "Content-Type": "application/json", ...(token ? { "PRIVATE-TOKEN": token } : {}) };
  const body = new TextEncoder().encode(JSON.stringify({ query, operationName, variables }));
  // The service refuses it without reading it, and a browser that still sends may not see the answer.
  if (body.length > MAX_BODY_BYTES) throw new GraphError("LIMIT_EXCEEDED", "This is too large to be sent at once.", { status: 413 });
  return reached(fetch(`${base}/graphql`, { method: "POST", headers, body, signal, cache: "no-store", credentials: "omit" }));
}

export function refused(error, response) {
  const { code, requestId } = error.extensions ?? {};
  return new GraphError(code ?? "INTERNAL", error.message, { status: response.status, wait: retryAfter(response.headers), requestId });
}

async function reached(promise) {
  try {
    return await promise;
  } catch (error) {
    if (error.name === "AbortError" || error instanceof GraphError) throw error;
    throw new GraphError("NETWORK", "The service cannot be reached.");
  }
}
