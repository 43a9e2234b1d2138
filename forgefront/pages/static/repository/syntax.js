// Syntax colours: highlight.js (../vendor/highlight, unmodified) reads a text, and its tokens become pieces of lines, never HTML.

const MAX_CHARACTERS = 200_000;
const MAX_LINE = 2_000;

const EXTENSIONS = {
  bash: "sh bash zsh ksh", c: "c h", cpp: "cc cpp cxx hh hpp", csharp: "cs", css: "css", diff: "diff patch", dockerfile: "dockerfile", elixir: "ex exs",
  erlang: "erl hrl", go: "go", gradle: "gradle", graphql: "graphql graphqls gql", groovy: "groovy", haskell: "hs", ini: "ini cfg conf toml editorconfig gitconfig",
  java: "java", javascript: "js mjs cjs jsx", json: "json jsonc webmanifest", kotlin: "kt kts", lua: "lua", makefile: "mk mak", markdown: "md markdown", nginx: "nginx",
  nix: "nix", objectivec: "m mm", perl: "pl pm", php: "php", powershell: "ps1 psm1", python: "py pyi pyw", r: "r", ruby: "rb rake gemspec", rust: "rs", scala: "scala sbt",
  scss: "scss", sql: "sql", swift: "swift", typescript: "ts tsx mts cts", xml: "xml html htm xhtml svg vue xsd plist", yaml: "yaml yml",
};
const NAMES = { dockerfile: "dockerfile", containerfile: "dockerfile", makefile: "makefile", gnumakefile: "makefile", rakefile: "ruby", gemfile: "ruby", jenkinsfile: "groovy", ".bashrc": "bash", ".profile": "bash" };
const BY_EXTENSION = new Map(Object.entries(EXTENSIONS).flatMap(([language, all]) => all.split(" ").map((each) => [each, language])));

/** The language of a file by its name; null if it is not known. */
function languageOf(name) {
  const lower = name.toLowerCase();
  return NAMES[lower] ?? (lower.includes(".") ? BY_EXTENSION.get(lower.split(".").at(-1)) : null) ?? null;
}

/**
 * The coloured lines of a text: for each line its pieces as `[text, scope]`, such as `["def", "keyword"]`. Null for a language that is
 * not known, and for a text that would occupy the browser too long. It runs after the text is shown.
 */
export async function colours(name, text) {
  const language = languageOf(name);
  if (!language || text.length > MAX_CHARACTERS || text.split("\n", 5_000).some((line) => line.length > MAX_LINE)) return null;
  const [{ default: highlighter }, { default: grammar }] = await Promise.all([
    import("../vendor/highlight/core.js"), import(`../vendor/highlight/languages/${language}.js`),
  ]);
  if (!highlighter.getLanguage(language)) highlighter.registerLanguage(language, grammar);
  const lines = [[]];
  const add = (node, scope) => {
    if (typeof node !== "string") {
      for (const child of node.children) add(child, node.scope?.split(".")[0] ?? scope);
      return;
    }
    const [first, ...others] = node.split("\n");
    if (first) lines.at(-1).push([first, scope]);
    for (const each of others) lines.push(each ? [[each, scope]] : []);
  };
  add(highlighter.highlight(text, { language, ignoreIllegals: true })._emitter.root, null);
  return lines;
}
