// Bundles GraphiQL into static files: `node build.mjs FOLDER`, where node_modules is beside it. scripts/graphiql runs it.
import { readFile, readdir, writeFile, copyFile } from "node:fs/promises";
import path from "node:path";
import { build } from "esbuild";

const target = process.argv[2];
const here = import.meta.dirname;
const modules = path.join(here, "node_modules");

// What is put in the place of a module: prettier is 0.7 MB for what graphql's own printer does; of the editor, only the features that are used.
const REPLACED = {
  "monaco-editor/esm/vs/editor/edcore.main.js": "editor.js",
  "prettier/standalone": "format.js",
  "prettier/plugins/graphql": "format.js",
  "prettier/parser-graphql": "format.js",
  "prettier/plugins/estree": "format.js",
  "prettier/parser-babel": "format.js",
};

const replace = {
  name: "replace",
  setup(build) {
    build.onResolve({ filter: /^(monaco-editor\/.*edcore|prettier\/)/ }, ({ path: name }) => ({ path: path.join(here, REPLACED[name]) }));
  },
};

const options = {
  bundle: true,
  minify: true,
  format: "iife",
  target: "es2022",
  charset: "utf8",
  jsx: "automatic",
  define: { "process.env.NODE_ENV": '"production"' },
  loader: { ".ttf": "file" },
  assetNames: "[name]",
  legalComments: "none",
  metafile: true,
  absWorkingDir: here,
  outdir: target,
  plugins: [replace],
  logLevel: "warning",
};

const entries = {
  graphiql: "entry.jsx",
  "json.worker": "monaco-editor/esm/vs/language/json/json.worker.js",
  "graphql.worker": "monaco-graphql/esm/graphql.worker.js",
};
const built = await Promise.all(Object.entries(entries).map(([name, file]) => build({ ...options, entryPoints: { [name]: file } })));
await copyFile(path.join(here, "index.html"), path.join(target, "index.html"));

// The licences of everything that went in.
const folders = new Set();
for (const { metafile } of built)
  for (const output of Object.values(metafile.outputs))
    for (const [input, { bytesInOutput }] of Object.entries(output.inputs)) {
      const found = bytesInOutput && /^(?:.*\/)?node_modules\/(?:@[^/]+\/)?[^/]+/.exec(input);
      if (found) folders.add(found[0]);
    }
const parts = ["The files beside this one were made by scripts/graphiql from these packages, under their licences."];
for (const folder of [...folders].sort()) {
  const absolute = path.join(here, folder);
  const { name, version, license } = JSON.parse(await readFile(path.join(absolute, "package.json"), "utf8"));
  const files = (await readdir(absolute)).filter((file) => /^(licen[cs]e|thirdpartynotices)/i.test(file)).sort();
  const texts = await Promise.all(files.map((file) => readFile(path.join(absolute, file), "utf8")));
  parts.push(`${name} ${version} (${license})\n\n${texts.map((text) => text.replaceAll("\r", "").trim()).join("\n\n")}`.trim());
}
await writeFile(path.join(target, "LICENSES.txt"), parts.join(`\n\n${"=".repeat(80)}\n\n`) + "\n");
