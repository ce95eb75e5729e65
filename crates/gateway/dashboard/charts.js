// Pictures of the past, as SVG with their meaning in words beside it.

import { h, svg } from "./dom.js";
import { clock, span, stateWord } from "./words.js";

const MINUTE = 60 * 1000;
const HOUR = 60 * MINUTE;
const SPANS = [[10 * MINUTE, "10 minutes"], [HOUR, "hour"], [6 * HOUR, "6 hours"], [24 * HOUR, "24 hours"]];

/** The span that a ribbon shows: the shortest that holds all that is known, so that a young gateway shows something. */
export function spanOf(pasts, now = Date.now()) {
  const oldest = Math.min(now, ...pasts.map(({ states }) => states[0]?.at ?? now));
  const [length, words] = SPANS.find(([length]) => now - oldest <= length) ?? SPANS.at(-1);
  return { length, words: `last ${words}` };
}

/** The states of a server as a ribbon. `states` are `{ at, state }`, the oldest first. */
export function ribbon(name, states, { length, words }, now = Date.now()) {
  const from = now - length;
  const pieces = states.map(({ at, state }, index) => {
    const begin = Math.max(at, from);
    const end = states[index + 1]?.at ?? now;
    return { state, begin, end };
  }).filter(({ begin, end }) => end > begin);
  const label = `${name}, ${words}: ${inWords(pieces)}`;
  const x = (at) => ((at - from) / length) * 1000;
  return svg("svg", { class: "ribbon", viewBox: "0 0 1000 20", preserveAspectRatio: "none", role: "img", "aria-label": label },
    svg("title", {}, label),
    svg("rect", { class: "unknown", x: 0, y: 0, width: 1000, height: 20 }),
    pieces.map(({ state, begin, end }) =>
      // A second of trouble must be seen too.
      svg("rect", { class: `fill-${state}`, x: x(begin), y: 0, width: Math.max(x(end) - x(begin), 1.5), height: 20 })));
}

function inWords(pieces) {
  if (pieces.length === 0) return "nothing is known yet";
  const known = pieces.reduce((sum, { begin, end }) => sum + end - begin, 0);
  const up = pieces.filter(({ state }) => state === "ready" || state === "idle");
  const good = up.reduce((sum, { begin, end }) => sum + end - begin, 0);
  const outages = pieces.filter(({ state }) => ["reconnecting", "parked", "needs_login", "config_error"].includes(state));
  const longest = outages.reduce((most, { begin, end }) => Math.max(most, end - begin), 0);
  const last = pieces.at(-1);
  const now = `${stateWord(last.state)} since ${clock(last.begin)}`;
  if (outages.length === 0) return now;
  const share = ((100 * good) / known).toFixed(1);
  const times = outages.length === 1 ? "once" : `${outages.length} times`;
  return `${now}; usable ${share} % of the time, away ${times}, for ${span(longest)} at most`;
}

/** Calls a minute with their errors as bars. */
export function rates(minutes) {
  const most = Math.max(1, ...minutes.map(({ calls }) => calls));
  const width = 600 / Math.max(minutes.length, 1);
  const label = `calls a minute, at most ${most}`;
  return figure("Calls a minute", most, svg("svg", { class: "chart", viewBox: "0 0 600 100", preserveAspectRatio: "none", role: "img", "aria-label": label },
    minutes.map(({ at, calls, errors }, index) => {
      const tall = (100 * calls) / most;
      const bad = (100 * errors) / most;
      return svg("g", {},
        svg("title", {}, `${clock(at)}: ${calls} calls, ${errors} errors`),
        svg("rect", { class: "calls", x: index * width, y: 100 - tall, width: width * 0.8, height: tall }),
        svg("rect", { class: "errors", x: index * width, y: 100 - bad, width: width * 0.8, height: bad }));
    })));
}

/** The 95th percentile of latency as a line. */
export function latency(minutes) {
  const known = minutes.filter(({ p95_ms: p95 }) => p95 !== null && p95 !== undefined);
  const most = Math.max(1, ...known.map(({ p95_ms: p95 }) => p95));
  const step = 600 / Math.max(minutes.length - 1, 1);
  const points = minutes.map(({ p95_ms: p95 }, index) => (p95 === null || p95 === undefined ? null : `${index * step},${100 - (95 * p95) / most}`));
  const label = `95th percentile of latency, at most ${span(most)}`;
  return figure("Latency, p95", span(most), svg("svg", { class: "chart", viewBox: "0 0 600 100", preserveAspectRatio: "none", role: "img", "aria-label": label },
    svg("title", {}, label),
    svg("polyline", { class: "latency", points: points.filter((point) => point !== null).join(" ") })));
}

function figure(title, most, picture) {
  return h("figure", {}, h("figcaption", {}, title, h("span", { class: "quiet" }, ` up to ${most}`)), picture);
}
