// The lines of a unified diff, and the words that changed between two of its lines.

const MAX_TOKENS = 400;
const TOKEN = /[\p{L}\p{N}_]+|\s+|[^]/gu;

/**
 * The hunks of a unified diff, without the lines before the first "@@": `{before, after, context, lines}`, where `before` and `after` are
 * the numbers of its first lines and `context` is what git shows after "@@". A line is `{kind, text, before, after}`, without its sign;
 * `kind` is added, removed, same or remark ("No newline at end of file").
 */
export function hunksOf(diff) {
  const found = [];
  let [before, after] = [0, 0];
  for (const line of diff.replace(/\n$/, "").split("\n")) {
    const head = /^@@ -(\d+)(,0)?(?:,\d+)? \+(\d+)(,0)?(?:,\d+)? @@ ?(.*)$/.exec(line);
    if (head) {
      // An empty side is numbered by the line before it.
      [before, after] = [Number(head[1]) + (head[2] ? 1 : 0), Number(head[3]) + (head[4] ? 1 : 0)];
      found.push({ before, after, context: head[5], lines: [] });
    } else if (found.length) {
      const text = line.slice(1).replace(/\r$/, "");
      const { lines } = found.at(-1);
      if (line.startsWith("+")) lines.push({ kind: "added", text, before: null, after: after++ });
      else if (line.startsWith("-")) lines.push({ kind: "removed", text, before: before++, after: null });
      else if (line.startsWith("\\")) lines.push({ kind: "remark", text: line.slice(2), before: null, after: null });
      else lines.push({ kind: "same", text, before: before++, after: after++ });
    }
  }
  return found;
}

/** Sets `words` of lines that replace each other: the ranges `[from, to]` of characters that changed. */
export function markWords({ lines }) {
  for (const [removed, added] of pairs(lines)) {
    if (!removed || !added || removed.kind !== "removed") continue;
    const changed = changedWords(removed.text, added.text);
    if (changed) [removed.words, added.words] = changed;
  }
}

/** The lines of a hunk side by side, as `[left, right]`; null where a side has no line. */
export function pairs(lines) {
  const found = [];
  let removed = [];
  let added = [];
  const flush = () => {
    for (let at = 0; at < Math.max(removed.length, added.length); at++) found.push([removed[at] ?? null, added[at] ?? null]);
    [removed, added] = [[], []];
  };
  for (const line of lines) {
    if (line.kind === "removed") {
      if (added.length) flush();
      removed.push(line);
    } else if (line.kind === "added") added.push(line);
    // A remark belongs to the line before it.
    else if (line.kind === "remark" && (removed.length || added.length)) (added.length ? added : removed).push(line);
    else {
      flush();
      found.push([line, line]);
    }
  }
  flush();
  return found;
}

/** The ranges that differ in each of two texts; null if they have little in common, so that marks would not help. */
function changedWords(one, other) {
  const [left, right] = [one.match(TOKEN) ?? [], other.match(TOKEN) ?? []];
  let start = 0;
  while (start < left.length && left[start] === right[start]) start++;
  let end = 0;
  while (end < Math.min(left.length, right.length) - start && left.at(-1 - end) === right.at(-1 - end)) end++;
  const middles = [left.slice(start, left.length - end), right.slice(start, right.length - end)];
  const kept = commonTokens(...middles);
  const common = [...left.slice(0, start), ...middles[0].filter((_, at) => kept[0].has(at)), ...left.slice(left.length - end)];
  const shared = common.join("").replace(/\s/g, "").length;
  if (shared * 3 < Math.max(one.trim().length, other.trim().length)) return null;
  return [ranges(left, start, end, kept[0]), ranges(right, start, end, kept[1])];
}

/** The positions of a longest common subsequence, in each list. */
function commonTokens(left, right) {
  const kept = [new Set(), new Set()];
  if (left.length * right.length > MAX_TOKENS * MAX_TOKENS || !left.length || !right.length) return kept;
  const width = right.length + 1;
  const best = new Uint16Array((left.length + 1) * width);
  for (let i = left.length - 1; i >= 0; i--)
    for (let j = right.length - 1; j >= 0; j--)
      best[i * width + j] = left[i] === right[j] ? best[(i + 1) * width + j + 1] + 1 : Math.max(best[(i + 1) * width + j], best[i * width + j + 1]);
  for (let i = 0, j = 0; i < left.length && j < right.length;) {
    if (left[i] === right[j]) {
      kept[0].add(i++);
      kept[1].add(j++);
    } else if (best[(i + 1) * width + j] >= best[i * width + j + 1]) i++;
    else j++;
  }
  return kept;
}

function ranges(tokens, start, end, kept) {
  const found = [];
  let position = 0;
  for (const [at, token] of tokens.entries()) {
    if (at >= start && at < tokens.length - end && !kept.has(at - start)) {
      if (found.length && found.at(-1)[1] === position) found.at(-1)[1] += token.length;
      else found.push([position, position + token.length]);
    }
    position += token.length;
  }
  return found;
}

/** Cuts pieces `[text, scope]` at the ends of ranges: `[text, scope, whether it is in a range]`. */
export function cut(pieces, ranges) {
  const found = [];
  let position = 0;
  for (const [text, scope] of pieces) {
    const ends = [...new Set([0, text.length, ...ranges.flat().map((each) => each - position).filter((each) => each > 0 && each < text.length)])].sort((a, b) => a - b);
    for (let at = 0; at + 1 < ends.length; at++) {
      const middle = position + ends[at];
      found.push([text.slice(ends[at], ends[at + 1]), scope, ranges.some(([from, to]) => middle >= from && middle < to)]);
    }
    position += text.length;
  }
  return found;
}
