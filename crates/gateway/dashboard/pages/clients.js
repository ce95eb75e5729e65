// Who uses the gateway: its sessions, and what clients have called lately.

import { read } from "../api.js";
import { h } from "../dom.js";
import { changed, model, onChange } from "../model.js";
import { refusal } from "../notices.js";
import { clock, count, span } from "../words.js";

const LATELY = 1000;

export function clients() {
  let sessions = null;
  let calls = [];
  let problem = null;
  let seen = null;

  async function look() {
    try {
      [{ sessions }, { calls }] = await Promise.all([read("sessions"), read(`calls?limit=${LATELY}`)]);
      problem = null;
    } catch (error) {
      problem = error;
    }
    changed();
  }

  // Whenever the fleet was looked at.
  const ignore = onChange(() => {
    if (seen !== model.fleet) {
      seen = model.fleet;
      look();
    }
  });
  look();

  return {
    leave: ignore,
    draw: () => [
      h("h1", {}, "Clients"),
      problem && refusal(problem, look),
      model.fleet?.clients && h("p", {}, summary(model.fleet.clients)),
      sessions && h("section", { "aria-labelledby": "sessions" },
        h("h2", { id: "sessions" }, "Sessions"),
        h("p", { class: "quiet" }, "Of legacy clients. Modern ones have none: each of their requests stands alone."),
        sessions.length === 0 ? h("p", { class: "quiet" }, "None.") : sessionTable(sessions)),
      sessions && h("section", { "aria-labelledby": "lately" },
        h("h2", { id: "lately" }, "Lately"),
        calls.length === 0 ? h("p", { class: "quiet" }, "No calls.") : lately(calls)),
    ],
  };
}

function summary({ connections, sessions, in_flight: inFlight }) {
  return `${count(connections, "connection")}, ${count(sessions, "session")}, ${count(inFlight, "request")} under way`;
}

function sessionTable(sessions) {
  const head = ["Client", "For", "Protocol", "Began", "Last used", "Under way", "Listening"];
  return table("sessions", head, sessions.map((session) => h("tr", { "data-key": String(session.number) },
    h("th", { scope: "row" }, session.name ?? "without a name"),
    h("td", {}, session.client),
    h("td", {}, session.protocol_version),
    h("td", { class: "number" }, `${span(session.age_ms)} ago`),
    h("td", { class: "number" }, session.idle_ms === null ? "now" : `${span(session.idle_ms)} ago`),
    h("td", { class: "number" }, String(session.running)),
    h("td", { class: "number" }, String(session.listening)))));
}

/** What each client has called, of the last calls there are. */
function lately(calls) {
  const known = new Map();
  for (const call of calls) {
    const said = call.client ?? "without a name";
    const name = call.principal && call.principal !== "local" ? `${said} (${call.principal})` : said;
    const one = known.get(name) ?? { calls: 0, failed: 0, servers: new Set(), last: call.started_ms };
    one.calls += 1;
    one.failed += call.outcome !== null && call.outcome !== "done" ? 1 : 0;
    one.servers.add(call.server);
    known.set(name, one);
  }
  return table("lately", ["Client", "Calls", "Not done", "Servers", "Last call"], [...known].map(([name, one]) =>
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
