// One server: status, history, tools, events and the last lines of stderr.

import { read, server as path } from "../api.js";
import { CHARTED, latency, rates, ribbon, spanOf, timeAxis } from "../charts.js";
import { h } from "../dom.js";
import { asOf, past, readWithStatus, upstream } from "../model.js";
import { capital, count, recently, span } from "../words.js";
import { actionButtons } from "./actions.js";
import { state } from "./overview.js";

const SHOWN_LINES = 200;

export function server(name) {
  const data = readWithStatus(async () => {
    const detail = await read(path(name));
    // A server with an invalid config has none of these.
    const known = await Promise.all(["tools", "log", "pins"].map((what) => read(`${path(name)}/${what}`).catch(() => null)));
    const pinned = (known[2]?.servers ?? []).flatMap((of) => of.tools);
    return {
      detail,
      tools: known[0]?.tools ?? [],
      log: known[1]?.lines ?? [],
      pins: new Map(pinned.map(({ tool, state }) => [tool, state])),
    };
  });

  return {
    leave: data.leave,
    draw: () => {
      const { problem, value } = data;
      if (problem) return [h("h1", {}, name), h("p", { class: "bad" }, problem.message, problem.hint && ` – ${problem.hint}`)];
      return value ? page(name, upstream(name) ?? value.detail, value) : h("p", {}, "Loading …");
    },
  };
}

function page(name, now, { detail, tools, log, pins }) {
  const { states, minutes } = past(name);
  const drawnAt = asOf();
  const shown = spanOf([{ states }], drawnAt, CHARTED);
  return [
    h("h1", {}, name, " ", state(now)),
    now.cause && h("p", { class: "cause" }, now.cause),
    now.attempt && h("p", { class: "quiet" }, now.attempt.text),
    now.hint && h("p", { class: "quiet" }, now.hint),
    actionButtons(now),
    h("section", { "aria-labelledby": "past" }, h("h2", { id: "past" }, capital(shown.words)),
      ribbon(name, states, shown, drawnAt), timeAxis(shown, drawnAt),
      h("div", { class: "charts" }, rates(minutes, shown, drawnAt), latency(minutes, shown, drawnAt))),
    h("section", { "aria-labelledby": "facts" }, h("h2", { id: "facts" }, "Facts"), facts(now)),
    h("section", { "aria-labelledby": "tools" }, h("h2", { id: "tools" }, `Tools (${tools.length})`), toolList(name, tools, pins)),
    h("section", { "aria-labelledby": "events" }, h("h2", { id: "events" }, "Events"), events(detail.events)),
    h("section", { "aria-labelledby": "stderr" }, h("h2", { id: "stderr" }, "Last lines of stderr"),
      log.length === 0 ? h("p", { class: "quiet" }, "No output.") : h("pre", { tabindex: 0, "aria-labelledby": "stderr" }, log.slice(-SHOWN_LINES).join("\n"))),
  ];
}

function facts(now) {
  const rows = [
    ["server", now.server_info],
    ["transport", [now.transport, now.pid && `pid ${now.pid}`, now.url].filter(Boolean).join(", ")],
    ["protocol", now.era && `${now.protocol_version ?? ""} (${now.era})`],
    ["session", now.session_age_ms !== null && `${span(now.session_age_ms)} old`],
    ["circuit", now.circuit.replace("_", " ") + (now.consecutive_failures ? `, ${now.consecutive_failures} failures in a row` : "")],
    ["restarts", `${now.restarts}, ${now.restarts_in_window} in the current window`],
    ["calls", `${now.calls}, ${count(now.errors, "error")}, ${count(now.tool_errors, "tool error")}, ${now.refused ? `${now.refused} refused while stopped, ` : ""}${now.in_flight} in flight, ${now.waiting} waiting`],
    ["latency", now.p95_ms !== null && `p50 ${span(now.p50_ms)}, p95 ${span(now.p95_ms)}`],
    ["spare", now.spare],
    ["next attempt", now.next_attempt_ms !== null && `in ${span(now.next_attempt_ms)}`],
  ];
  return h("dl", {}, rows.filter(([, fact]) => fact).map(([label, fact]) =>
    h("div", { "data-key": label }, h("dt", {}, label), h("dd", {}, fact))));
}

function toolList(name, tools, pins) {
  if (tools.length === 0) return h("p", { class: "quiet" }, "No tools are known.");
  return h("ul", { class: "tools" }, tools.map((tool) =>
    h("li", { "data-key": tool.name },
      h("a", { href: `#/try/${encodeURIComponent(name)}/${encodeURIComponent(tool.name)}` }, tool.name),
      (tool.marks ?? []).map((mark) => h("span", { class: `mark mark-${mark}` }, mark.replace("_", " "))),
      pins.get(tool.name) === "approved" && h("span", { class: "mark" }, "approved"),
      pins.get(tool.name) === "changed" && h("a", { class: "mark mark-quarantined", href: "#/changes" }, "waits for approval"),
      tool.description && h("span", { class: "quiet" }, ` ${tool.description.split("\n")[0]}`))));
}

/** Events, the newest first. */
export function events(list, named = false) {
  if (list.length === 0) return h("p", { class: "quiet" }, "No events yet.");
  const newest = [...list].sort((a, b) => b.at - a.at);
  return h("ol", { class: "events" }, newest.map(({ at, kind, server, text }) =>
    h("li", { class: `event-${kind}` }, h("time", { datetime: new Date(at).toISOString() }, recently(at)),
      named && h("strong", {}, ` ${server ?? "gateway"}`), ` ${text}`)));
}
