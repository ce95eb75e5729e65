// Clients of the gateway: their sessions and their recent calls.

import { read } from "../api.js";
import { h } from "../dom.js";
import { model, readWithStatus } from "../model.js";
import { refusal } from "../notices.js";
import { clock, count, span } from "../words.js";

const RECENT_CALLS = 1000;

export function clients() {
  const data = readWithStatus(async () => {
    const [{ sessions }, { calls }] = await Promise.all([read("sessions"), read(`calls?limit=${RECENT_CALLS}`)]);
    return { sessions, calls };
  });

  return {
    leave: data.leave,
    draw: () => [
      h("h1", {}, "Clients"),
      data.problem && refusal(data.problem, data.refresh),
      model.fleet?.clients && h("p", {}, summary(model.fleet.clients)),
      data.value && page(data.value),
    ],
  };
}

function page({ sessions, calls }) {
  return [
    h("section", { "aria-labelledby": "sessions" },
      h("h2", { id: "sessions" }, "Sessions"),
      h("p", { class: "quiet" }, "Sessions of legacy clients. Modern clients have none: each of their requests is self-contained."),
      sessions.length === 0 ? h("p", { class: "quiet" }, "None.") : sessionTable(sessions)),
    h("section", { "aria-labelledby": "recent" },
      h("h2", { id: "recent" }, "Recent calls"),
      calls.length === 0 ? h("p", { class: "quiet" }, "No calls.") : recentCalls(calls)),
  ];
}

function summary({ connections, sessions, in_flight: inFlight }) {
  return `${count(connections, "connection")}, ${count(sessions, "session")}, ${count(inFlight, "request")} in flight`;
}

function sessionTable(sessions) {
  const head = ["Client", "Principal", "Protocol", "Started", "Last used", "In flight", "Open streams"];
  return table("sessions", head, sessions.map((session) => h("tr", { "data-key": String(session.number) },
    h("th", { scope: "row" }, session.name ?? "unnamed"),
    h("td", {}, session.client),
    h("td", {}, session.protocol_version),
    h("td", { class: "number" }, `${span(session.age_ms)} ago`),
    h("td", { class: "number" }, session.idle_ms === null ? "now" : `${span(session.idle_ms)} ago`),
    h("td", { class: "number" }, String(session.running)),
    h("td", { class: "number" }, String(session.listening)))));
}

/** Recent calls, counted per client. */
function recentCalls(calls) {
  const known = new Map();
  for (const call of calls) {
    const client = call.client ?? "unnamed";
    const name = call.principal && call.principal !== "local" ? `${client} (${call.principal})` : client;
    const one = known.get(name) ?? { calls: 0, failed: 0, servers: new Set(), last: call.started_ms };
    one.calls += 1;
    one.failed += call.outcome !== null && call.outcome !== "done" ? 1 : 0;
    one.servers.add(call.server);
    known.set(name, one);
  }
  return table("recent", ["Client", "Calls", "Not completed", "Servers", "Last call"], [...known].map(([name, one]) =>
    h("tr", { "data-key": name },
      h("th", { scope: "row" }, name),
      h("td", { class: "number" }, String(one.calls)),
      h("td", { class: "number" }, String(one.failed)),
      h("td", {}, [...one.servers].join(", ")),
      h("td", {}, clock(one.last)))));
}

function table(labelled, head, rows) {
  return h("div", { class: "scroll", tabindex: 0, role: "group", "aria-labelledby": labelled },
    h("table", {},
      h("thead", {}, h("tr", {}, head.map((title) => h("th", { scope: "col" }, title)))),
      h("tbody", {}, rows)));
}
