// The panel of examples: the operations of the document in the page, each opened in a tab with variables that fit what the viewer sees.
import { useMemo } from "react";
import { pick, useGraphiQL, useGraphiQLActions } from "@graphiql/react";
import { parse, print } from "graphql";
import { ask, session } from "./fetcher.js";

const DAYS = 24 * 60 * 60 * 1000;
const PLACES = `query ExamplePlaces {
  own: projects(first: 1, filter: { ciEnabled: true, membership: true }) { ...place }
  any: projects(first: 1, filter: { ciEnabled: true }) { ...place }
}

fragment place on ProjectConnection {
  nodes { fullPath defaultBranch milestones(first: 1) { nodes { title } } }
}`;

const EXAMPLES = parse(document.getElementById("examples").textContent).definitions.map((definition) => ({
  name: definition.name.value,
  kind: definition.operation,
  text: print(definition),
  variables: definition.variableDefinitions.map(({ variable, type }) => [variable.name.value, print(type)]),
}));

/** The variables of an example; `project` is one that the viewer may see, if there is one. */
function valuesOf(variables, project) {
  const since = new Date(Date.now() - 30 * DAYS).toISOString();
  const until = new Date().toISOString();
  const path = project?.fullPath ?? "group/project";
  const known = { p: path, ps: [path], g: path.split("/").slice(0, -1).join("/"), b: project?.defaultBranch ?? "main", rev: project?.defaultBranch ?? "main" };
  known.m = project?.milestones.nodes[0]?.title ?? "title of a milestone";
  const typed = { "DateTime!": since, "DateTimeRange!": { since, until } };
  return Object.fromEntries(variables.map(([name, type]) => [name, typed[type] ?? known[name] ?? null]));
}

/** "D03_WhoBrokeIt" as "Who broke it". */
function titleOf(name) {
  return name.replace(/^[A-Z]\d+_/, "").replace(/(?<=.)[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`);
}

/** A project for the examples: one of the viewer's own, or any that the viewer sees, if there is one. */
async function found() {
  try {
    const token = (await session).token();
    const { data } = token ? await (await ask(token, { query: PLACES })).json() : {};
    return data?.own.nodes[0] ?? data?.any.nodes[0];
  } catch {
    return undefined;
  }
}

export function Examples() {
  const { queryEditor, variableEditor, fetcher } = useGraphiQL(pick("queryEditor", "variableEditor", "fetcher"));
  const { addTab } = useGraphiQLActions();
  // Asked for once for each token; an example that is opened before it is known waits.
  const finding = useMemo(found, [fetcher]);

  async function open({ text, variables }) {
    const project = await finding;
    addTab();
    queryEditor.setValue(text);
    variableEditor.setValue(JSON.stringify(valuesOf(variables, project), null, 2));
    queryEditor.focus();
  }

  return (
    <section aria-label="Examples" className="examples">
      <h2>Examples</h2>
      <p>What a dashboard asks, each in one request. A click opens one in a new tab.</p>
      <ul>
        {EXAMPLES.map((example) => (
          <li key={example.name}>
            <button type="button" onClick={() => open(example)}>
              {titleOf(example.name)}
              {example.kind === "query" ? null : <small> {example.kind}</small>}
            </button>
          </li>
        ))}
      </ul>
    </section>
  );
}
