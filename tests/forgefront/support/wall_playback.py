"""Plays the events and rotations of a wall on a screen as fast as the browser takes them, and measures the memory of the page."""

from dataclasses import dataclass

from tests.forgefront.support.browser import BrowserPage

DAY_ROTATIONS = 86_400 // 20
DAY_EVENTS = 86_400 // 10
"""Of a busy instance: a build begins or ends every ten seconds."""
EVENTS_BETWEEN_DISCONNECTS = 60
EVENTS_BETWEEN_REQUESTS = 10
"""Each tenth tile is requested from the service, which takes longer than all else; the others are as those before."""

SCRIPT = (
    (
        """(() => {
  const [fetchReally, waitReally] = [window.fetch, window.setTimeout];
  const intervals = new Map();
  window.setInterval = (act, pause) => (intervals.set(-1 - intervals.size, {act, pause}), -intervals.size);
  window.clearInterval = (number) => intervals.delete(number);
  // MAX_OPENING of live.js is not shortened: the page would treat each stream as one that opened late.
  window.setTimeout = (act, pause) => waitReally(act, pause === 1500 ? pause : Math.min(pause ?? 0, 1));
  const sleep = () => new Promise((resolve) => waitReally(resolve, 0));
  const counts = { sent: 0, tiles: 0, connections: 0, resumed: 0, failed: 0 };
  const answers = new Map();
  const headers = { 'Content-Type': 'text/event-stream', 'Last-Event-ID': '0' };
  let stream = null;
  window.fetch = async (url, options) => {
    if (!String(url).endsWith('/graphql')) return fetchReally(url, options);
    const { operationName, variables } = JSON.parse(new TextDecoder().decode(options.body));
    if (operationName === 'Builds') {
      counts.connections += 1;
      counts.resumed += Number(variables.afterSeq) === counts.sent ? 1 : 0;
      const body = new ReadableStream({ start: (controller) => (stream = controller) }).pipeThrough(new TextEncoderStream());
      return new Response(body, { headers });
    }
    if (operationName === 'Heads') return new Response(new ReadableStream(), { headers });
    if (operationName !== 'Tile') return fetchReally(url, options);
    const { path } = variables;
    if (!answers.has(path) || counts.sent % REQUESTED === 0) answers.set(path, await (await fetchReally(url, options)).text());
    const answer = JSON.parse(answers.get(path));
    const rollup = answer.data?.project.branch.target.rollup;
    if (rollup) rollup.state = ['RUNNING', 'FAILED', 'SUCCESS'][counts.sent % 3];
    counts[rollup ? 'tiles' : 'failed'] += 1;
    return new Response(JSON.stringify(answer));
  };
  const run = (every) => [...intervals.values()].filter(({ pause }) => pause === every).forEach(({ act }) => act());
  window.playWall = async (paths, events, rotations) => {
    let turned = 0;
    for (let at = 0; at < events; at += 1) {
      while (!stream) await sleep();
      const [path, before] = [paths[at % paths.length], counts.tiles];
      counts.sent += 1;
      const data = { data: { buildChanged: { to: 'FAILED', build: { project: { fullPath: path } } } } };
      stream.enqueue(`event: next\\nid: ${counts.sent}\\ndata: ${JSON.stringify(data)}\\n\\n`);
      while (counts.tiles === before) await sleep();
      run(1000);
      for (; turned < ((at + 1) * rotations) / events; turned += 1) run(20_000);
      if (counts.sent % BETWEEN === 0) { stream.close(); stream = null; }
    }
    while (!stream) await sleep();
    return counts;
  };
})()"""
    )
    .replace("BETWEEN", str(EVENTS_BETWEEN_DISCONNECTS))
    .replace("REQUESTED", str(EVENTS_BETWEEN_REQUESTS))
)


@dataclass(frozen=True, slots=True)
class PageMemory:
    """What is left after the garbage was collected."""

    heap_bytes: int
    nodes: int
    listeners: int


async def measure_memory(page: BrowserPage) -> PageMemory:
    for _ in range(2):
        await page.send("HeapProfiler.collectGarbage")
    usage, counters = await page.send("Runtime.getHeapUsage"), await page.send("Memory.getDOMCounters")
    return PageMemory(int(usage["usedSize"]), int(counters["nodes"]), int(counters["jsEventListeners"]))


async def play(page: BrowserPage, paths: list[str], share: float, of_day: float) -> dict[str, int]:
    """Plays this share of this part of a day; returns counts since the page was opened."""
    counts: dict[str, int] = {}
    left = round(DAY_EVENTS * of_day * share)
    while left > 0:
        # In parts, because the browser answers within a time limit.
        events = min(left, 100)
        counts = await page.evaluate(f"playWall({paths}, {events}, {events * DAY_ROTATIONS / DAY_EVENTS})")
        left -= events
    return counts
