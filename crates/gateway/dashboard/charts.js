// SVG charts of the history, each with a text description for screen readers.

import { h, svg } from "./dom.js";
import { clock, count, hour, span, stateWord } from "./words.js";

const MINUTE = 60 * 1000;
const HOUR = 60 * MINUTE;
const SPANS = [[10 * MINUTE, "10 minutes"], [HOUR, "hour"], [3 * HOUR, "3 hours"], [6 * HOUR, "6 hours"], [24 * HOUR, "24 hours"]];
/** The gateway counts calls by the minute for this long. */
export const CHARTED = 3 * HOUR;

/** The time range of a page: the shortest that covers the recorded history, so that charts of a new gateway are not empty. */
export function spanOf(pasts, now, longest = 24 * HOUR) {
  const oldest = Math.min(now, ...pasts.map(({ states }) => states[0]?.at ?? now));
  const [length, words] = SPANS.find(([length]) => length >= Math.min(now - oldest, longest));
  return { length, words: `last ${words}` };
}

/** The states of a server as a ribbon. `states` are `{ at, state }`, the oldest first. */
export function ribbon(name, states, { length, words }, now) {
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
      // An outage of one second must be visible too.
      svg("rect", { class: `fill-${state}`, x: x(begin), y: 0, width: Math.max(x(end) - x(begin), 1.5), height: 20 })));
}

function inWords(pieces) {
  if (pieces.length === 0) return "no data yet";
  const known = pieces.reduce((sum, { begin, end }) => sum + end - begin, 0);
  const up = pieces.filter(({ state }) => state === "ready" || state === "idle");
  const good = up.reduce((sum, { begin, end }) => sum + end - begin, 0);
  const outages = pieces.filter(({ state }) => ["reconnecting", "parked", "needs_login", "config_error"].includes(state));
  const longest = outages.reduce((most, { begin, end }) => Math.max(most, end - begin), 0);
  const last = pieces.at(-1);
  const now = `${stateWord(last.state)} since ${clock(last.begin)}`;
  if (outages.length === 0) return now;
  const share = ((100 * good) / known).toFixed(1);
  return `${now}; available ${share} % of the time, ${count(outages.length, "outage")}, longest ${span(longest)}`;
}

/** Calls per minute with their errors as bars. */
export function rates(minutes, shown, now) {
  const { from, x, kept } = within(minutes, shown, now);
  const most = roundUp(Math.max(1, ...kept.map(({ calls }) => calls)));
  const label = `Calls per minute, ${shown.words}: at most ${Math.max(0, ...kept.map(({ calls }) => calls))}`;
  const picture = svg("svg", { class: "chart", viewBox: "0 0 1000 100", preserveAspectRatio: "none", role: "img", "aria-label": label },
    kept.map(({ at, calls, errors }) => {
      const left = x(Math.max(at - MINUTE, from));
      const width = (x(at) - left) * 0.9;
      const [tall, bad] = [calls, errors].map((number) => (100 * number) / most);
      return svg("g", {},
        svg("title", {}, `${clock(at)}: ${calls} calls, ${errors} errors`),
        svg("rect", { class: "calls", x: left, y: 100 - tall, width, height: tall }),
        svg("rect", { class: "errors", x: left, y: 100 - bad, width, height: bad }));
    }));
  return figure(["Calls per minute", h("span", { class: "quiet" }, " errors in red")], [String(most), "0"], picture, shown, now);
}

/** The 95th percentile of latency: a line for each minute with calls. */
export function latency(minutes, shown, now) {
  const { from, x, kept } = within(minutes, shown, now);
  const known = kept.filter(({ p95_ms: p95 }) => p95 !== null && p95 !== undefined);
  const top = Math.max(0, ...known.map(({ p95_ms: p95 }) => p95));
  const most = roundUp(Math.max(1, top));
  const label = `95th percentile of latency, ${shown.words}: at most ${span(top)}`;
  const line = ({ at, p95_ms: p95 }) => `M${x(Math.max(at - MINUTE, from))},${100 - (100 * p95) / most}H${x(at)}`;
  const picture = svg("svg", { class: "chart", viewBox: "0 0 1000 100", preserveAspectRatio: "none", role: "img", "aria-label": label },
    svg("title", {}, label),
    svg("path", { class: "latency", d: known.map(line).join("") }));
  return figure(["Latency", h("span", { class: "quiet" }, " 95th percentile of the last calls")], [span(most), "0 ms"], picture, shown, now);
}

/** The minutes within the range, and the position of a time on the axis. */
function within(minutes, { length }, now) {
  const from = now - length;
  return { from, kept: minutes.filter(({ at }) => at > from && at <= now), x: (at) => ((at - from) / length) * 1000 };
}

/** Rounds up to 1, 2 or 5 times a power of ten. */
function roundUp(number) {
  const size = 10 ** Math.floor(Math.log10(number));
  return [1, 2, 5, 10].map((step) => step * size).find((step) => step >= number);
}

/** Times at the start, middle and end of the range. */
export function timeAxis({ length }, now) {
  return h("div", { class: "axis-x" }, [length, length / 2, 0].map((ago) => h("time", { datetime: new Date(now - ago).toISOString() }, hour(now - ago))));
}

function figure(title, [most, least], picture, shown, now) {
  return h("figure", {}, h("figcaption", {}, title),
    h("div", { class: "plot" }, h("div", { class: "axis-y" }, h("span", {}, most), h("span", {}, least)), picture, timeAxis(shown, now)));
}
