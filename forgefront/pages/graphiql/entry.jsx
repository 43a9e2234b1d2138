// The GraphiQL page: the token's field, the dashboard questions as examples, and the way to the graph.
import { useMemo, useState } from "react";
import { createRoot } from "react-dom/client";
import { GraphiQL, HISTORY_PLUGIN } from "graphiql";
import { Examples } from "./examples.jsx";
import { BASE, fetcherFor, session } from "./fetcher.js";
import "@graphiql/react/style.css";
import "@graphiql/plugin-doc-explorer/style.css";
import "@graphiql/plugin-history/style.css";
import "graphiql/graphiql.css";
import "./page.css";

globalThis.MonacoEnvironment = {
  // The editor's own worker is a part of either; one fewer to load.
  getWorker: (_id, label) => new Worker(new URL(label === "graphql" ? "graphql.worker.js" : "json.worker.js", BASE)),
};

const EXAMPLES = { title: "Examples", icon: ExamplesIcon, content: Examples };
const PLUGINS = [EXAMPLES, HISTORY_PLUGIN];
const ROOT = new URL("../../", BASE).pathname;
const FIRST = `# Examples are in the panel on the left. Ctrl+Enter runs what is here.
{
  viewer {
    username
  }
}
`;

/** The operation and the variables of a link to this page, `#query=…&variables=…`: a fragment is not sent to a server. */
const LINKED = new URLSearchParams(location.hash.slice(1));

function ExamplesIcon() {
  return (
    <svg height="1em" viewBox="0 0 14 14" fill="none" stroke="currentColor" strokeWidth="1.5" aria-hidden="true">
      <path d="M1 2h2M5.5 2H13M1 7h2m2.5 0H13M1 12h2m2.5 0H13" />
    </svg>
  );
}

function Page({ session }) {
  const [token, setToken] = useState(session.token() ?? "");
  const fetcher = useMemo(() => fetcherFor(token), [token]);

  function signIn(event) {
    event.preventDefault();
    const given = new FormData(event.currentTarget).get("token").trim();
    if (given) session.begin(given, { stay: false, minutes: 0 });
    else session.end();
    setToken(given);
  }

  // Without a token nothing can be asked, so the schema is not asked for either; a new fetcher asks for it.
  return (
    <>
      <header className="token">
        <h1>GraphiQL</h1>
        <nav aria-label="Forgefront">
          <a href={ROOT}>Forgefront</a>
          <a href={`${ROOT}-/reference`}>The schema</a>
          <a href={`${ROOT}api/v3/docs`}>REST v3</a>
        </nav>
        <form onSubmit={signIn} key={token}>
          <label htmlFor="token">Private token</label>
          <input id="token" name="token" type="password" autoComplete="off" spellCheck="false" defaultValue={token} required={!token} />
          <button>{token ? "Change" : "Sign in"}</button>
          <span role="status">{token ? "It is sent as PRIVATE-TOKEN. Empty it to sign out." : "Paste a token to begin."}</span>
        </form>
      </header>
      <main>
        <GraphiQL
          fetcher={fetcher}
          schema={token ? undefined : null}
          schemaDescription={true}
          plugins={PLUGINS}
          visiblePlugin={EXAMPLES}
          defaultEditorToolsVisibility="variables"
          defaultQuery={FIRST}
          initialQuery={LINKED.get("query") ?? undefined}
          initialVariables={LINKED.get("variables") ?? undefined}
          shouldPersistHeaders={false}
          showPersistHeadersSettings={false}
        />
      </main>
    </>
  );
}

session.then((session) => createRoot(document.getElementById("graphiql")).render(<Page session={session} />));
