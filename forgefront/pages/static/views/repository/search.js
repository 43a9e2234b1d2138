// Search in the files of a project: by path and in their text, at a branch, a tag or a commit.

import { h, replace } from "../../dom.js";
import { replaceByError } from "../../errors.js";
import { empty, section } from "../../parts.js";
import { fileAddress, searchAddress } from "../../repository/addresses.js";
import { refChoice, showFiles } from "../../repository/file_bar.js";
import { styles } from "../../repository/styles.js";

const SHOWN_PATHS = 10;

export async function open(page) {
  const { path } = page.where;
  const given = page.query.get("ref") || null;
  const text = (page.query.get("q") ?? "").trim();
  const [{ project }] = await Promise.all([page.request("Search", { path }), styles()]);
  if (!project) throw page.missing("project");
  const ref = given ?? project.defaultBranch;
  const field = h("input", { id: "search", type: "search", "data-filter": true, value: text, autocomplete: "off", maxlength: 200, placeholder: "Search in files and their names" });
  const submit = (event) => {
    event.preventDefault();
    if (field.value.trim()) page.go(searchAddress(path, given, field.value.trim()));
  };
  const results = h("div.found", { "aria-live": "polite" }, text ? h("p.quiet", null, "Searching…") : null);
  showFiles(page, project, { ref, heading: text ? `Search for ${text}` : "Search" },
    h("div.file-bar", null, refChoice(page, path, project, ref, (name) => searchAddress(path, name, text)),
      h("form.file-search", { role: "search", onsubmit: submit }, h("label.unseen", { for: "search" }, "Search in files and their names"), field, h("button.primary", null, "Search"))),
    results);
  if (!text) {
    field.focus();
    return;
  }
  // The names are found at once; the text takes up to seconds.
  const parts = [h("div"), h("div", null, h("p.quiet", null, "Searching…"))];
  replace(results, parts);
  const request = async (operation, field, place, show) => {
    try {
      const { project: found } = await page.request(operation, { path, ref: given, text });
      replace(place, found?.[field] ? show(found[field]) : empty("Nothing to search", "There is no such branch, tag or commit, or the search is not possible."));
    } catch (error) {
      replaceByError(place)(error);
    }
  };
  await Promise.all([
    request("FoundPaths", "searchPaths", parts[0], (found) => paths(path, ref, found)),
    request("FoundText", "searchText", parts[1], (found) => texts(path, ref, text, found)),
  ]);
}

const count = (number, truncated, word) => `${number}${truncated ? " or more" : ""} ${word}${number === 1 && !truncated ? "" : "s"}`;

function paths(path, ref, { matches, truncated }) {
  if (!matches.length) return null;
  const list = h("ol.rows.found-paths", { "data-walk": true }, matches.map(({ path: place }, index) =>
    h("li", { "data-box": true, hidden: index >= SHOWN_PATHS }, h("a", { href: fileAddress(path, place, ref), "data-item": true }, place))));
  const rest = matches.length <= SHOWN_PATHS ? null : h("button.more", { type: "button", onclick: ({ currentTarget }) => {
    for (const each of list.children) each.hidden = false;
    currentTarget.remove();
  } }, `Show all ${matches.length}`);
  return section("Files", h("span.quiet", null, count(matches.length, truncated, "file")), list, rest);
}

function texts(path, ref, text, { matches, truncated }) {
  const byFile = Map.groupBy ? Map.groupBy(matches, (each) => each.path) : group(matches);
  return section("Text", h("span.quiet", null, matches.length ? `${count(matches.length, truncated, "line")} of ${count(byFile.size, truncated, "file")}` : null),
    matches.length
      ? h("ol.found-files", { "data-walk": true }, [...byFile].map(([place, rows]) => h("li.found-file", null,
        h("h3", null, h("a", { href: fileAddress(path, place, ref) }, place)),
        h("ol", null, rows.map((row) => h("li.found-line", { "data-box": true },
          h("a", { href: `${fileAddress(path, place, ref)}#L${row.line}`, "data-item": true },
            h("span.number", null, h("span.unseen", null, "Line "), row.line), h("code", null, marked(row.text, text)))))))))
      : h("p.quiet", null, truncated ? "Nothing was found within the time of a search. Search for something longer." : "No line has this text."));
}

function group(matches) {
  const found = new Map();
  for (const each of matches) found.set(each.path, [...(found.get(each.path) ?? []), each]);
  return found;
}

/** A line whose occurrences of the text are marked. */
function marked(line, text) {
  const [lower, wanted] = [line.toLowerCase(), text.toLowerCase()];
  if (lower.length !== line.length) return line;
  const found = [];
  let from = 0;
  for (let at = lower.indexOf(wanted); at >= 0; at = lower.indexOf(wanted, from)) {
    found.push(line.slice(from, at), h("mark", null, line.slice(at, at + wanted.length)));
    from = at + wanted.length;
  }
  found.push(line.slice(from));
  return found;
}
