// Runs every audit of graphql-http against a server: `node audit.mjs URL TOKEN`. Prints a JSON list of {id, name, status, reason}.
import { auditServer } from "graphql-http";

const [url, token] = process.argv.slice(2);
const results = await auditServer({ url, fetchFn: (to, options) => fetch(to, { ...options, headers: { ...options?.headers, "private-token": token } }) });
console.log(JSON.stringify(results.map(({ id, name, status, reason }) => ({ id, name, status, reason }))));
