"use strict";

// Strings of the document enter the page as text, never as markup.
function make(tag, text, className) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (className) element.className = className;
  return element;
}

let described;

// Resolves a reference into the document; returns anything else unchanged.
function resolve(part) {
  return part.$ref ? part.$ref.slice(2).split("/").reduce((inner, key) => inner[key], described) : part;
}

function typeOf(schema) {
  if (schema.anyOf) return schema.anyOf.map(typeOf).join(" | ");
  if (schema.$ref && !resolve(schema).enum) return schema.$ref.split("/").pop();
  schema = resolve(schema);
  if (schema.enum) return schema.enum.map(String).join(" | ");
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  const kinds = Array.isArray(schema.type) ? schema.type.join(" | ") : schema.type || "any";
  return schema.items ? kinds.replace("array", `array of ${typeOf(schema.items)}`) : kinds;
}

// A sketch of a response: its keys, with types instead of values.
function sketch(schema, indent = "") {
  if (schema.anyOf) return schema.anyOf.map((each) => sketch(each, indent)).join(" | ");
  schema = resolve(schema);
  const kinds = [].concat(schema.type || []);
  const orNull = kinds.includes("null") && kinds.length > 1 ? " | null" : "";
  if (kinds.includes("array")) return `[${sketch(schema.items, indent)}]${orNull}`;
  if (!schema.properties) return schema.format || typeOf(schema);
  const inner = indent + "  ";
  const lines = Object.entries(schema.properties).map(([key, part]) => {
    const sure = (schema.required || []).includes(key) ? "" : "?";
    return `${inner}"${key}"${sure}: ${sketch(part, inner)}`;
  });
  return `{\n${lines.join(",\n")}\n${indent}}${orNull}`;
}

function parametersOf(call) {
  const rows = call.parameters.map((each) => ({ ...each, place: each.in }));
  // Files require multipart; every other kind of body has the same fields.
  const body = call.requestBody && resolve(Object.values(call.requestBody.content)[0].schema);
  for (const [name, schema] of Object.entries(body ? body.properties : {})) {
    rows.push({ name, schema, place: "body", required: (body.required || []).includes(name), description: schema.description });
  }
  return rows;
}

function parameterTable(rows) {
  const table = make("table");
  const head = table.createTHead().insertRow();
  for (const title of ["Parameter", "In", "Type", ""]) head.append(make("th", title));
  const body = table.createTBody();
  for (const each of rows) {
    const row = body.insertRow();
    row.insertCell().append(make("code", each.name));
    row.insertCell().textContent = each.place;
    row.insertCell().textContent = typeOf(each.schema);
    row.insertCell().textContent = [each.required ? "required" : "", each.description || ""].filter(Boolean).join("; ");
  }
  return table;
}

function callOf(path, method, call) {
  const details = make("details");
  details.id = call.operationId;
  details.dataset.words = `${method} ${path} ${call.summary}`.toLowerCase();
  if (call.deprecated) details.className = "deprecated";
  const summary = make("summary");
  summary.append(make("span", method.toUpperCase(), "method"), make("code", path), make("span", ` ${call.summary}`, "what"));
  details.append(summary);
  const rows = parametersOf(call);
  if (rows.length) details.append(parameterTable(rows));
  for (const [status, reference] of Object.entries(call.responses)) {
    const answer = resolve(reference);
    details.append(make("p", `${status} ${answer.description}`));
    const schema = Object.values(answer.content)[0].schema;
    if (status < "300" && schema) details.append(make("pre", sketch(schema)));
  }
  return details;
}

function show(description) {
  described = description;
  document.getElementById("about").textContent = description.info.description;
  const sections = new Map(description.tags.map((tag) => [tag.name, []]));
  for (const [path, methods] of Object.entries(description.paths)) {
    for (const [method, call] of Object.entries(methods)) {
      const name = (call.tags || ["Other"])[0];
      if (!sections.has(name)) sections.set(name, []);
      sections.get(name).push(callOf(path, method, call));
    }
  }
  const calls = document.getElementById("calls");
  calls.replaceChildren();
  for (const [name, entries] of sections) {
    const section = make("section");
    section.append(make("h2", name), ...entries);
    calls.append(section);
  }
  document.getElementById("filter").addEventListener("input", filter);
  const wanted = location.hash && document.getElementById(location.hash.slice(1));
  if (wanted) wanted.open = true;
}

function filter(event) {
  const words = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
  for (const section of document.querySelectorAll("main section")) {
    let shown = 0;
    for (const call of section.querySelectorAll("details")) {
      call.hidden = !words.every((word) => call.dataset.words.includes(word));
      if (!call.hidden) shown += 1;
    }
    section.hidden = shown === 0;
  }
}

fetch(document.body.dataset.document)
  .then((answer) => {
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    return answer.json();
  })
  .then(show)
  .catch((error) => {
    document.getElementById("calls").replaceChildren(make("p", `The document cannot be read: ${error.message}`));
  });
