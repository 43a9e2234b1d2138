// The frame of a chart: its title and figures, what is under the pointer, its table, and the links to its rows, its operation and its CSV.

import { base } from "../address.js";
import { h, replace } from "../dom.js";
import { showError } from "../errors.js";
import * as graph from "../graph.js";
import { save } from "../project/downloads.js";

/**
 * The card of an operation. `show(data, variables)` returns `{figures, chart, key, below, columns, rows, list}`: `figures` is a list of
 * `[value, name]`, `columns` and `rows` are those of the table, which is folded below a `chart`, and `list` is that of the CSV where it is
 * not the first. `links(variables)` is a list of `[word, address]`. `load` gets the variables of filters.js, with `sent` for the operation.
 */
export function card(page, { title, wide = false, view, operation, show, links = () => [] }) {
  const [figures, content, footer] = [h("dl.figures"), h("div.card-body"), h("footer.card-links")];
  const element = h(`section.card.chart${wide ? ".wide" : ""}`, { "aria-label": title }, h("header.card-head", null, h("h2", null, title), figures), content, footer);
  /** The newest choice: an answer for an earlier one is not shown. */
  let newest = null;
  return {
    element,
    async load(variables) {
      newest = variables;
      element.setAttribute("aria-busy", "true");
      try {
        const data = await asked(page, view, operation, variables);
        if (newest !== variables) return;
        const wrong = graph.errorIn(data);
        // The chart of a group has the projects whose data the viewer may see.
        if (wrong && !(data.group && wrong.code === "FORBIDDEN")) throw wrong;
        const { figures: numbers = [], chart, key = null, below = null, columns, rows, list = null } = show(data, variables);
        replace(figures, numbers.map(([value, name]) => h("div", null, h("dt", null, name), h("dd", null, value))));
        const open = content.querySelector("details")?.open;
        replace(content, rows.length ? [chart, key, below, columns ? table(title, columns, rows, { open, folded: chart !== null }) : null] : h("p.quiet.nothing", null, "Nothing in this range. Choose a longer one, or fewer filters."));
        replace(footer, links(variables).map(([word, href]) => h("a", { href }, word)), await inGraphiql(view, variables.sent), csv(page, operation, variables.sent, list));
      } catch (error) {
        if (error.name === "AbortError" || newest !== variables) return;
        replace(figures);
        replace(content, h("p.wrong", { role: "alert" }, error.message));
      } finally {
        if (newest === variables) element.removeAttribute("aria-busy");
      }
    },
  };
}

/** The answer of an operation, which several charts share. */
function asked(page, view, operation, { sent, answers }) {
  const name = `${operation} ${JSON.stringify(sent)}`;
  if (!answers.has(name)) answers.set(name, graph.request(`dashboards/${view}`, operation, sent, { signal: page.signal }));
  return answers.get(name);
}

/** A line that says what is under the pointer, and otherwise the whole. */
export function reading(whole) {
  const element = h("p.read-out", { "aria-hidden": "true" }, whole);
  return { element, say: (text) => (element.textContent = text ?? whole) };
}

function table(title, columns, rows, { open, folded }) {
  const element = h("div.table-scroll", { tabindex: 0, role: "group", "aria-label": `${title}: table` }, h("table", null,
    h("caption.unseen", null, title),
    h("thead", null, h("tr", null, columns.map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", null, rows.map(([first, ...others]) => h("tr", null, h("th", { scope: "row" }, first), others.map((each) => h("td", null, each ?? "–")))))));
  return folded ? h("details.figures-table", { open }, h("summary", null, "Table"), element) : element;
}

/** A link to GraphiQL with the operation and its variables, in the fragment, which is not sent to a server. */
async function inGraphiql(view, variables) {
  const query = await graph.documentOf(`dashboards/${view}`);
  const fragment = new URLSearchParams({ query, variables: JSON.stringify(variables, null, 2) });
  return h("a", { href: `${base}/-/graphiql#${fragment}` }, "GraphiQL");
}

/** A link with the address of the CSV, for a spreadsheet; a click saves the file. */
function csv(page, operation, variables, list) {
  const query = new URLSearchParams(Object.entries(variables).filter(([, value]) => value !== null).map(([name, value]) => [name, typeof value === "object" ? JSON.stringify(value) : value]));
  if (list) query.set("list", list);
  const href = `${base}/q/${operation}.csv?${query}`;
  const wrong = h("span.wrong", { role: "alert", hidden: true });
  return [h("a", { href, title: "Download the rows; spreadsheets can import this address", onclick: async (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    wrong.hidden = true;
    try {
      await save(page, href, `${operation}.csv`);
      page.announce("The file is saved.");
    } catch (error) {
      showError(wrong, error);
    }
  } }, "CSV"), wrong];
}
