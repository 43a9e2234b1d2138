// Shows /report.json, and loads it again every few seconds. Open differences stay open.

import { h, replace } from "/-/pages/dom.js";
import { button } from "/-/pages/themes.js";

const SECONDS = 5;
const main = document.getElementById("main");
const live = document.getElementById("live");
const open = new Set();
let shown = "";

button(document.getElementById("theme"));
load();

async function load() {
  try {
    const response = await fetch("/report.json", { cache: "no-store" });
    if (!response.ok) throw new Error(response.statusText);
    const report = await response.json();
    show(report);
    live.dataset.state = "live";
    live.textContent = "Live";
  } catch {
    live.dataset.state = "waiting";
    live.textContent = "No connection";
  }
  setTimeout(load, SECONDS * 1000);
}

function show(report) {
  const content = JSON.stringify({ ...report, written: "" });
  if (content === shown) return;
  shown = content;
  const { total } = report;
  const missing = sum(total.not_compared);
  replace(
    main,
    h("h1", null, "Shadow report"),
    h("p.servers", null, `The ${report.answers} server answers. Old: ${report.old}. New: ${report.new}. Since ${report.began}.`),
    h("dl.figures", null,
      figure("Requests", total.seen), figure("Equal", total.equal, total.equal > 0 && "good"),
      figure("Different", total.different, total.different > 0 && "bad"), figure("Not compared", missing),
      figure("Lost by the queue", total.lost, total.lost > 0 && "bad"),
    ),
    total.seen === 0 && h("div.empty", null, h("h2", null, "No requests yet"), h("p", null, "They appear here as clients use the proxy.")),
    differences(report.routes.filter((route) => route.differences.length)),
    counts("Routes", "route", report.routes),
    counts("Clients", "client", report.clients),
    reasons("Not compared", "Reason", Object.entries(total.not_compared)),
    reasons("Ignored differences", "Rule", report.ignored.map((row) => [`${row.rule}: ${row.reason}`, row.count])),
  );
}

const sum = (counts) => Object.values(counts).reduce((all, count) => all + count, 0);

const figure = (name, number, state) => h(`div.figure${state ? `.${state}` : ""}`, null, h("dt", null, name), h("dd", null, number.toLocaleString("en")));

function differences(routes) {
  if (!routes.length) return null;
  return h("section", { "aria-labelledby": "differences" }, h("h2", { id: "differences" }, "Differences"), routes.map((route) => {
    const element = h("details", { open: open.has(route.route) },
      h("summary", null, h("code", null, route.route), h("span", null, `${route.different} of ${route.equal + route.different}`)),
      route.differences.map(difference),
    );
    element.addEventListener("toggle", () => (element.open ? open.add(route.route) : open.delete(route.route)));
    return element;
  }));
}

function difference(row) {
  const clients = Object.entries(row.clients).map(([name, count]) => `${name} (${count})`).join(", ");
  return h("div.difference", null,
    h("p", null, h("span.kind", null, row.kind), h("code", null, row.place), ` ${row.count} times`),
    h("p.quiet", null, clients),
    row.example && h("p", null, h("code", null, row.example.request)),
    row.example && h("dl.sides", null, ["old", "new"].map((side) => h("div", null, h("dt", null, side), h("dd", null, h("pre", null, JSON.stringify(row.example[side], null, 2)))))),
  );
}

function counts(title, key, rows) {
  if (!rows.length) return null;
  return h("section", null, h("h2", null, title), h("div.wide", { tabindex: 0, role: "region", "aria-label": title }, h("table", null,
    h("thead", null, h("tr", null, [title.slice(0, -1), "Seen", "Equal", "Different", "Not compared", "Old ms", "New ms"].map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", null, rows.map((row) => h("tr", null,
      h("th", { scope: "row" }, h("code", null, row[key])), h("td", null, `${row.seen}`), h("td", null, `${row.equal}`),
      h(row.different ? "td.bad" : "td", null, `${row.different}`), h("td", null, `${sum(row.not_compared)}`),
      h("td", null, row.old_milliseconds?.toFixed(1) ?? "–"), h("td", null, row.new_milliseconds?.toFixed(1) ?? "–"),
    ))),
  )));
}

function reasons(title, heading, rows) {
  if (!rows.length) return null;
  return h("section", null, h("h2", null, title), h("div.wide", null, h("table", null,
    h("thead", null, h("tr", null, h("th", { scope: "col" }, heading), h("th", { scope: "col" }, "Count"))),
    h("tbody", null, rows.map(([name, count]) => h("tr", null, h("th", { scope: "row" }, name), h("td", null, `${count}`)))),
  )));
}
