// Charts of statistics as SVG: lines, columns and bands over time. Every series differs by its marker, dashes or pattern as well as by colour.

import { h, replace, s } from "../dom.js";
import { duration } from "../parts.js";

const LEFT = 52;
const RIGHT = 10;
const TOP = 8;
const BOTTOM = 22;
const HEIGHT = 172;
const NICE_SECONDS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 28_800, 43_200, 86_400, 172_800, 432_000, 864_000, 1_728_000, 4_320_000];
const TICKS = 4;
const MAX_MARKERS = 40;
let patterns = 0;

/** A chart that fills its container: `draw(width)` returns its SVG element, again whenever the width changes. */
function fitted(draw) {
  const box = h("div.plot");
  let shown = 0;
  new ResizeObserver(([{ contentRect: { width } }]) => {
    if (width < 1 || Math.abs(width - shown) < 1) return;
    shown = width;
    replace(box, draw(width));
  }).observe(box);
  return box;
}

/**
 * Series over time. `span` is `[from, until]` in milliseconds, `points` the times, each of `series` is `{name, kind, values, look}` with a
 * value or null for each point: `kind` is "line" or "column" (columns are stacked), `look` the CSS class with its colour. `seconds`: values
 * are durations. `top` is the least maximum of the scale. `read(index)` is called for the point under the pointer, and with null.
 */
export const overTime = ({ label, span, points, series, zone, seconds = false, unit = "", top = 0, read }) =>
  fitted((width) => {
    const columns = series.filter(({ kind }) => kind === "column");
    const lines = series.filter(({ kind }) => kind === "line");
    const stacked = points.map((_, at) => columns.reduce((sum, { values }) => sum + (values[at] ?? 0), 0));
    const largest = Math.max(top, ...stacked, ...lines.flatMap(({ values }) => values.map((each) => each ?? 0)));
    const ticks = seconds ? secondTicks(largest) : numberTicks(largest);
    const [x, y] = [scale(span, [LEFT, width - RIGHT]), scale([0, ticks.at(-1)], [HEIGHT - BOTTOM, TOP])];
    const gap = points.length > 1 ? Math.min(...points.slice(1).map((each, at) => x(each) - x(points[at]))) : 24;
    const wide = Math.max(2, Math.min(26, gap * 0.7));
    const place = (at) => Math.min(Math.max(x(points[at]) + (columns.length ? gap / 2 : 0), LEFT + wide / 2), width - RIGHT - wide / 2);
    const cursor = s("line.cursor", { y1: TOP, y2: HEIGHT - BOTTOM, x1: -9, x2: -9 });
    const element = frame(label, width, HEIGHT, [
      ticks.map((tick) => [
        s("line.grid", { x1: LEFT, x2: width - RIGHT, y1: y(tick), y2: y(tick) }),
        s("text.tick", { x: LEFT - 8, y: y(tick) + 4, "text-anchor": "end" }, seconds ? short(tick) : `${tick}${unit}`),
      ]),
      timeTicks(span, x, width, zone, HEIGHT - 5),
      points.map((_, at) => {
        let base = 0;
        return columns.map(({ values, look, fill }) => {
          const value = values[at] ?? 0;
          const [from, to] = [y(base), y(base + value)];
          base += value;
          return value ? s(`rect.${look}`, { x: place(at) - wide / 2, width: wide, y: to, height: Math.max(1, from - to), fill: fill ?? null }) : null;
        });
      }),
      lines.map(({ values, look, marker }) => [
        s(`path.line.${look}`, { d: path(values, place, y) }),
        points.length > MAX_MARKERS ? null : values.map((value, at) => (value === null || value === undefined ? null : mark(marker, look, place(at), y(value)))),
      ]),
      cursor,
    ]);
    element.addEventListener("pointermove", (event) => {
      const at = nearest(points.map((_, each) => place(each)), event.offsetX);
      if (at === null) return;
      cursor.setAttribute("x1", place(at));
      cursor.setAttribute("x2", place(at));
      read?.(at);
    });
    element.addEventListener("pointerleave", () => {
      cursor.setAttribute("x1", -9);
      cursor.setAttribute("x2", -9);
      read?.(null);
    });
    return element;
  });

/** The states of a branch as bands: `rows` of `{name, segments: [{state, from, until, title}]}`, times in milliseconds. */
export const bands = ({ label, span, rows, zone, read }) =>
  fitted((width) => {
    const named = rows.length > 1;
    const [high, left] = [named ? 22 : 36, named ? Math.min(150, width / 3) : RIGHT];
    const height = rows.length * (high + 8) + 24;
    const x = scale(span, [left, width - RIGHT]);
    const fill = makePatterns();
    return frame(label, width, height, [
      fill.element,
      rows.map(({ name, segments }, at) => {
        const y = at * (high + 8) + 2;
        return [
          named ? s("text.tick", { x: left - 8, y: y + high / 2 + 4, "text-anchor": "end" }, clipped(name, left / 7.2)) : null,
          s("rect.band-none", { x: left, y, width: Math.max(0, width - RIGHT - left), height: high, rx: 4 }),
          segments.map((segment) => {
            const [from, to] = [x(Math.max(segment.from, span[0])), x(Math.min(segment.until, span[1]))];
            return s(`rect.band.band-${segment.state.toLowerCase()}`, {
              x: from, y, width: Math.max(1.5, to - from), height: high, fill: fill.of(segment.state),
              onpointerenter: () => read?.(segment), onpointerleave: () => read?.(null),
            });
          }),
        ];
      }),
      timeTicks(span, x, width, zone, height - 5, left),
    ]);
  });

/** A small chart of the last builds, oldest first: a bar for each, as high as it took long; that of a failed one stands on a line. */
export function builds(nodes) {
  if (!nodes.length) return null;
  const shown = nodes.toReversed();
  const longest = Math.max(1, ...shown.map(({ durationSeconds }) => durationSeconds ?? 0));
  const passed = shown.filter(({ status }) => status === "SUCCESS").length;
  const failed = shown.filter(({ status }) => status === "FAILED").length;
  const label = `Last ${shown.length} builds: ${passed} passed, ${failed} failed`;
  return s("svg.last-builds", { viewBox: `0 0 ${shown.length * 7} 22`, width: shown.length * 7, height: 22, role: "img", "aria-label": label },
    s("title", null, label),
    shown.map(({ status, durationSeconds }, at) => {
      const high = 4 + 15 * Math.sqrt((durationSeconds ?? 0) / longest);
      return [
        s(`rect.last-${status.toLowerCase()}`, { x: at * 7 + 1, y: 19 - high, width: 4.5, height: high, rx: 1 }),
        status === "FAILED" ? s("rect.last-failed", { x: at * 7, y: 20.5, width: 6.5, height: 1.5 }) : null,
      ];
    }));
}

/** A bar whose parts are `[value, look]`, of `whole`, for a cell of a table. */
export function shares(parts, whole) {
  const width = 120;
  let from = 0;
  const fill = makePatterns();
  return s("svg.shares", { viewBox: `0 0 ${width} 10`, width, height: 10, "aria-hidden": "true" }, fill.element,
    s("rect.band-none", { width, height: 10, rx: 3 }),
    parts.map(([value, state]) => {
      const wide = whole ? (width * value) / whole : 0;
      const part = s(`rect.band.band-${state.toLowerCase()}`, { x: from, width: wide, height: 10, fill: fill.of(state) });
      from += wide;
      return wide ? part : null;
    }));
}

/** The key of the series: a sample of each and its name. */
export const key = (series) =>
  h("ul.key", null, series.map(({ name, kind, look, marker, fill }) => h("li", null,
    s("svg", { width: 26, height: 12, viewBox: "0 0 26 12", "aria-hidden": "true" },
      kind === "line" ? [s(`path.line.${look}`, { d: "M1 6H25" }), mark(marker, look, 13, 6)] : s(`rect.${look}`, { x: 7, width: 12, height: 12, fill: fill ?? null })),
    name)));

/** Diagonal lines for what failed, dots for what runs or waits, so that states differ without colour. `of(state)` is a value of `fill`. */
function makePatterns() {
  const id = `pattern-${(patterns += 1)}`;
  return {
    element: s("defs", null,
      s("pattern", { id: `${id}-failed`, width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
        s("rect.fill-failed", { width: 6, height: 6 }), s("rect.stripe", { width: 2.4, height: 6 })),
      s("pattern", { id: `${id}-busy`, width: 6, height: 6, patternUnits: "userSpaceOnUse" },
        s("rect.fill-busy", { width: 6, height: 6 }), s("circle.stripe", { cx: 3, cy: 3, r: 1.2 }))),
    of: (state) => (state === "FAILED" ? `url(#${id}-failed)` : state === "RUNNING" || state === "PENDING" ? `url(#${id}-busy)` : null),
  };
}

const frame = (label, width, height, content) =>
  s("svg", { role: "img", "aria-label": label, viewBox: `0 0 ${width} ${height}`, width, height }, content);

const scale = ([from, to], [start, end]) => (value) => start + ((value - from) / (to - from || 1)) * (end - start);

function path(values, x, y) {
  let pen = "M";
  return values.map((value, at) => {
    if (value === null || value === undefined) return (pen = "M"), "";
    const step = `${pen}${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
    pen = "L";
    return step;
  }).join("");
}

function mark(kind, look, x, y) {
  if (kind === "square") return s(`rect.mark.${look}`, { x: x - 3, y: y - 3, width: 6, height: 6 });
  return s(`circle.mark.${look}`, { cx: x, cy: y, r: 3 });
}

function nearest(places, x) {
  let best = null;
  places.forEach((each, at) => {
    if (best === null || Math.abs(each - x) < Math.abs(places[best] - x)) best = at;
  });
  return best;
}

function numberTicks(largest) {
  const rough = Math.max(largest, 1) / TICKS;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = Math.max(1, [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough));
  return upTo(largest, step);
}

function secondTicks(largest) {
  const rough = Math.max(largest, 1) / TICKS;
  return upTo(largest, NICE_SECONDS.find((each) => each >= rough) ?? 86_400 * Math.ceil(rough / 86_400));
}

const upTo = (largest, step) => Array.from({ length: Math.max(1, Math.ceil(largest / step)) + 1 }, (_, at) => at * step);

/** A duration for an axis: "90 s" would be in the way. */
export const short = (value) =>
  value === 0 ? "0" : value < 60 ? `${value} s` : value < 3600 ? `${+(value / 60).toFixed(1)} min` : value < 172_800 ? `${+(value / 3600).toFixed(1)} h` : `${+(value / 86_400).toFixed(1)} d`;

function timeTicks([from, until], x, width, zone, y, left = LEFT) {
  const count = Math.max(2, Math.min(6, Math.floor((width - left) / 90)));
  const form = new Intl.DateTimeFormat("en", { day: "numeric", month: "short", timeZone: zone });
  return Array.from({ length: count }, (_, at) => {
    const time = from + ((until - from) * at) / (count - 1);
    return s("text.tick", { x: x(time), y, "text-anchor": at === 0 ? "start" : at === count - 1 ? "end" : "middle" }, form.format(time));
  });
}

const clipped = (text, most) => (text.length > most ? `${text.slice(0, Math.max(1, Math.floor(most) - 1))}…` : text);

/** Seconds as text, or a dash. */
export const took = (value) => (value === null || value === undefined ? "–" : value < 10 ? `${+value.toFixed(1)} s` : duration(value));
