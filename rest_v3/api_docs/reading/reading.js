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
  const frame = make("div", undefined, "table");
  const table = make("table");
  frame.append(table);
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
  return frame;
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
  details.addEventListener("toggle", () => {
    if (details.open && !details.querySelector("form")) details.append(trialOf(path, method, call, rows));
  });
  for (const [status, reference] of Object.entries(call.responses)) {
    const answer = resolve(reference);
    details.append(make("p", `${status} ${answer.description}`));
    const schema = Object.values(answer.content)[0].schema;
    if (status < "300" && schema) details.append(make("pre", sketch(schema)));
  }
  return details;
}

// A form that sends the call, with all its effects.
function trialOf(path, method, call, rows) {
  const form = make("form");
  form.setAttribute("aria-label", `Try ${method.toUpperCase()} ${path}`);
  const fields = rows.filter((each) => resolve(each.schema).format !== "binary").map((each) => {
    const label = make("label", `${each.name} `);
    const input = make("input");
    input.autocomplete = "off";
    input.required = Boolean(each.required);
    label.append(input);
    form.append(label);
    return { ...each, input };
  });
  const hasFile = fields.length < rows.length;
  const button = make("button", method === "get" ? "Try it" : `Send ${method.toUpperCase()}`);
  const answer = make("pre");
  answer.hidden = true;
  answer.tabIndex = 0;
  answer.setAttribute("role", "status");
  form.append(button, answer);
  if (hasFile) form.replaceChildren(make("p", "Calls that send files cannot be tried here."));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    button.disabled = true;
    try {
      await send(path, method, fields, answer);
    } catch (error) {
      answer.textContent = `The call failed: ${error.message}`;
    }
    answer.hidden = false;
    button.disabled = false;
  });
  return form;
}

const MAX_SHOWN = 100_000;

async function send(path, method, fields, answer) {
  const query = new URLSearchParams();
  const body = new URLSearchParams();
  let address = path;
  for (const { name, place, schema, input } of fields) {
    const value = input.value.trim();
    if (place === "path") address = address.replaceAll(`{${name}}`, encodeURIComponent(value));
    else if (value) {
      const values = [].concat(resolve(schema).type).includes("array") ? value.split(",").map((each) => [`${name}[]`, each.trim()]) : [[name, value]];
      for (const each of values) (place === "body" ? body : query).append(...each);
    }
  }
  const url = `${document.body.dataset.document.replace(/\/openapi\.json$/, "")}${address}${query.size ? `?${query}` : ""}`;
  const token = document.getElementById("token").value.trim();
  const response = await fetch(url, { method: method.toUpperCase(), headers: token ? { "PRIVATE-TOKEN": token } : {}, body: body.size ? body : undefined });
  const kind = response.headers.get("Content-Type") || "";
  let text = /json|text/.test(kind) ? await response.text() : `${kind}, ${(await response.blob()).size} bytes`;
  if (kind.includes("json")) text = JSON.stringify(JSON.parse(text), null, 2);
  const rest = text.length > MAX_SHOWN ? `\n… ${text.length - MAX_SHOWN} further characters` : "";
  answer.textContent = `${method.toUpperCase()} ${url}\n${response.status} ${response.statusText}\n\n${text.slice(0, MAX_SHOWN)}${rest}`;
}

// The token of the person who is signed in to the pages of this service.
function sessionToken() {
  for (const store of ["sessionStorage", "localStorage"]) {
    try {
      const found = JSON.parse(window[store].getItem("forgefront.session"));
      if (found && typeof found.token === "string" && !(found.until && found.until < Date.now())) return found.token;
    } catch {
      // Storage is unavailable, or the session is not one of these pages.
    }
  }
  return "";
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
  document.getElementById("token").value = sessionToken();
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
