// Recent calls, the newest first, with filters.

import { read } from "../api.js";
import { h } from "../dom.js";
import { changed, model, upstream } from "../model.js";
import { refusal } from "../notices.js";
import { count, moment, span } from "../words.js";

const REFRESH_INTERVAL = 1000;
const MAX_CALLS = 200;
const OUTCOMES = ["running", "done", "failed", "refused", "not_sent", "unknown"];

export function calls() {
  const filter = { server: "", outcome: "", tool: "" };
  let latest = null;
  let problem = null;
  let requests = 0;
  /** Ids of the calls whose details are shown. */
  const open = new Set();

  async function refresh() {
    const number = (requests += 1);
    const query = new URLSearchParams({ limit: String(MAX_CALLS) });
    if (filter.server) query.set("server", filter.server);
    if (filter.outcome === "unknown") query.set("unknown", "true");
    try {
      const answer = await read(`calls?${query}`);
      // Ignores a late answer to an older request.
      if (number !== requests) return;
      latest = answer;
      problem = null;
    } catch (error) {
      problem = error;
    }
    changed();
  }

  function choose(key) {
    return (event) => {
      filter[key] = event.target.value;
      refresh();
    };
  }

  function toggle(id) {
    if (!open.delete(id)) open.add(id);
    changed();
  }

  const timer = setInterval(() => document.hidden || refresh(), REFRESH_INTERVAL);
  refresh();

  return {
    leave: () => clearInterval(timer),
    draw: () => [
      h("h1", {}, "Calls"),
      h("form", { class: "filters", onsubmit: (event) => event.preventDefault() },
        field("server", "Server", select("server", choose("server"), (model.fleet?.upstreams ?? []).map(({ name }) => name))),
        field("outcome", "Outcome", select("outcome", choose("outcome"), OUTCOMES)),
        field("tool", "Tool", h("input", { id: "tool", type: "search", "data-own": true, oninput: choose("tool") }))),
      problem && refusal(problem, refresh),
      latest && list(latest, filter, open, toggle),
    ],
  };
}

function field(id, label, control) {
  return h("span", {}, h("label", { for: id }, label), " ", control);
}

/** Updated in place, so that new servers appear in the list and the selection is kept. */
function select(id, chosen, words) {
  return h("select", { id, onchange: chosen },
    h("option", { value: "" }, "all"),
    words.map((word) => h("option", { value: word, "data-key": word }, word.replace("_", " "))));
}

function list({ calls: rows, left_out: older, ledger }, filter, open, toggle) {
  const shown = rows.filter((call) =>
    (!filter.outcome || (call.outcome ?? "running") === filter.outcome) && call.tool.includes(filter.tool));
  return [
    ledger?.keeps === "off" && h("p", { class: "warn" }, "The ledger is off: calls are not recorded."),
    ledger?.cause && h("p", { class: "bad" }, `The ledger cannot be written: ${ledger.cause}`),
    shown.length === 0 ? h("p", { class: "quiet" }, "No calls.") : table(shown, open, toggle),
    older > 0 && h("p", { class: "quiet" }, `${count(older, "older call")} not shown; `, h("code", {}, "gripfast calls"), " lists them."),
  ];
}

function table(rows, open, toggle) {
  const head = ["Started", "Client", "Server", "Tool", "Outcome", "Duration", "Attempts", "What to do", "Details"];
  return h("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "Calls" },
    h("table", {},
      h("thead", {}, h("tr", {}, head.map((title) => h("th", { scope: "col" }, title)))),
      h("tbody", {}, rows.map((call) => [row(call, open.has(call.id), toggle), open.has(call.id) && details(call, head.length)]))));
}

function row(call, isOpen, toggle) {
  const outcome = call.outcome ?? "running";
  return h("tr", { "data-key": call.id, class: `outcome-${outcome}` },
    h("td", {}, h("time", { datetime: new Date(call.started_ms).toISOString() }, moment(call.started_ms))),
    h("td", {}, call.client ?? "–"),
    h("td", {}, serverOf(call)),
    h("td", {}, call.tool),
    h("td", { title: call.text }, outcome.replace("_", " "), call.code && h("span", { class: "quiet" }, ` ${call.code.replaceAll("_", " ")}`)),
    h("td", { class: "number" }, call.took_ms === null ? "–" : span(call.took_ms)),
    h("td", { class: "number" }, call.attempts === null ? "–" : String(call.attempts)),
    h("td", { class: "hint" }, call.hint ?? ""),
    h("td", {}, h("button", {
      type: "button",
      "aria-expanded": String(isOpen),
      "aria-label": `${isOpen ? "Hide" : "Show"} details of ${call.tool}, ${moment(call.started_ms)}`,
      onclick: () => toggle(call.id),
    }, isOpen ? "Hide" : "Show")));
}

/** Processes that share a state directory share its ledger: a server of another process has no page here. */
function serverOf({ server }) {
  return upstream(server) ? h("a", { href: `#/server/${encodeURIComponent(server)}` }, server) : server;
}

function details(call, columns) {
  const facts = [
    ["call", call.id],
    ["server", upstream(call.server) ? null : `${call.server}, which is not a server of this gateway`],
    ["principal", call.principal],
    ["client", call.client],
    ["started", moment(call.started_ms)],
    ["ended", call.ended_ms === null ? null : moment(call.ended_ms)],
    ["outcome", call.text],
    ["error", call.code],
    ["attempts", call.attempts === null ? null : `${call.attempts}, of which ${call.replays ?? 0} after a reconnect`],
    ["arguments", call.arguments === null ? null : JSON.stringify(call.arguments)],
    ["SHA-256", call.sha256],
  ];
  return h("tr", { "data-key": `${call.id} details` }, h("td", { colspan: columns, class: "details" },
    h("dl", {}, facts.filter(([, fact]) => fact).map(([label, fact]) => h("div", {}, h("dt", {}, label), h("dd", {}, fact))))));
}
