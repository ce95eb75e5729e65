// Replicas of the service that the gateway belongs to, with the warnings about them and about the store.

import { read } from "../api.js";
import { h } from "../dom.js";
import { model, readWithStatus } from "../model.js";
import { refusal } from "../notices.js";
import { count, span } from "../words.js";

/** Names in a warning; a service may have a hundred replicas. */
const SHOWN_NAMES = 5;

const STATES = {
  live: ["●", "state-ready"],
  lost: ["✗", "state-parked"],
  unknown: ["?", "state-degraded"],
};

export function replicas() {
  const rows = readWithStatus(() => read("replicas"));

  return {
    leave: rows.leave,
    draw: () => [
      h("h1", {}, "Replicas"),
      rows.problem && refusal(rows.problem, rows.refresh),
      model.fleet && (model.fleet.cluster ? page(model.fleet.cluster, rows.value ?? []) : alone()),
    ],
  };
}

/** The store in the list of what needs attention, if it is unreachable. */
export function storeTrouble({ store, cause, last_contact_ms: age }) {
  if (store === "ok") return null;
  const effect = age === undefined
    ? "This gateway has not joined its service. It serves alone and tries again."
    : `Last contact ${span(age)} ago. Sessions and calls go on; no session is taken over until the store is back.`;
  // The cause may begin with the same words.
  const reason = cause.replace(/^the store is unreachable: /, "");
  // No server has a name with a space.
  return warning("the store", "bad", "store unreachable", `: ${reason}`, effect);
}

function page(cluster, rows) {
  const gone = rows.filter(({ state }) => state === "lost");
  const present = rows.filter(({ state }) => state !== "lost");
  const warnings = [storeTrouble(cluster), lost(gone, cluster), differs(present, "config_hash"), differs(present, "version")].filter(Boolean);
  return [
    h("p", { class: "quiet" }, summary(cluster, present)),
    warnings.length > 0 && h("section", { "aria-labelledby": "attention" },
      h("h2", { id: "attention" }, "Needs attention"),
      h("ul", { class: "attention" }, warnings)),
    rows.length > 0 && h("section", { "aria-labelledby": "replicas" },
      h("h2", { id: "replicas" }, "Replicas of the service"),
      h("p", { class: "quiet" }, "Figures of the last heartbeat of each replica. Forwards are requests that it passes to other replicas; store latency is the round trip of its heartbeat."),
      table(rows, cluster)),
  ];
}

function summary({ replica }, present) {
  const sum = (of) => present.reduce((sum, row) => sum + of(row), 0);
  const sessions = count(sum(({ sessions }) => sessions), "session");
  return `Served by replica ${replica}. ${count(present.length, "replica")}, ${sessions}, ${rate(sum((row) => row.forwards_per_second))} forwards per second.`;
}

function lost(gone, { store }) {
  if (gone.length === 0) return null;
  const sessions = store === "ok"
    ? "Other replicas take over each client session with its next request."
    : "The client sessions of lost replicas get errors until the store is back.";
  return warning("lost", "bad", `${count(gone.length, "replica")} lost`, `: ${some(gone.map(({ name, lost_ms: age }) => `${name}, ${span(age)} ago`), "; ")}`,
    [sessions, " ", h("a", { href: "#/calls" }, "Calls"), " shows calls whose outcome is unknown."]);
}

const DIFFERENCES = {
  config_hash: ["configs differ", "The replicas must have the same servers, clients and budgets."],
  version: ["versions differ", "This is normal during an upgrade."],
};

/** A warning with the replicas that have each value, if there is more than one. */
function differs(present, field) {
  const values = Map.groupBy(present, (row) => row[field]);
  if (values.size < 2) return null;
  const [title, effect] = DIFFERENCES[field];
  const groups = [...values].map(([value, rows]) => `${value} at ${some(rows.map(({ name }) => name), ", ")}`);
  return warning(field, "warn", title, `: ${some(groups, "; ")}`, effect);
}

function some(names, separator) {
  const more = names.length - SHOWN_NAMES;
  return names.slice(0, SHOWN_NAMES).join(separator) + (more > 0 ? ` and ${more} more` : "");
}

function warning(key, severity, title, text, effect) {
  const [sign, colour] = severity === "bad" ? ["✗", "state-parked"] : ["!", "state-degraded"];
  return h("li", { "data-key": key, class: colour },
    h("p", {}, badge(sign, colour, title), text),
    h("p", { class: "quiet" }, effect));
}

function badge(sign, colour, text) {
  return h("span", { class: `badge ${colour}` }, h("span", { "aria-hidden": "true" }, sign), ` ${text}`);
}

function table(rows, { store }) {
  const head = ["Replica", "State", "Sessions", "Forwards per second", "Store latency", "Config", "Version", "Address"];
  const own = rows.find((row) => row.self);
  return h("div", { class: "scroll", tabindex: 0, role: "group", "aria-labelledby": "replicas" },
    h("table", {},
      h("thead", {}, h("tr", {}, head.map((title) => h("th", { scope: "col" }, title)))),
      h("tbody", {}, rows.map((row) => tableRow(row, own, store)))));
}

function tableRow(row, own, store) {
  const [sign, colour] = STATES[row.state] ?? STATES.unknown;
  const other = (field) => own && row[field] !== own[field] && [" ", h("span", { class: "mark mark-differs" }, "differs")];
  return h("tr", {},
    h("th", { scope: "row" }, row.name, row.self && [" ", h("span", { class: "mark" }, "this one")]),
    h("td", {}, badge(sign, colour, row.state)),
    h("td", { class: "number" }, String(row.sessions)),
    h("td", { class: "number" }, rate(row.forwards_per_second)),
    h("td", { class: "number" }, row.store_latency_ms === null || (row.self && store !== "ok") ? "–" : `${rate(row.store_latency_ms)} ms`),
    h("td", { class: "code" }, row.config_hash, other("config_hash")),
    h("td", {}, row.version, other("version")),
    h("td", { class: "code" }, row.advertise));
}

/** One decimal for small numbers. */
function rate(number) {
  return number < 100 ? number.toFixed(1) : String(Math.round(number));
}

function alone() {
  return h("p", {}, "This gateway runs alone. The table ", h("code", {}, "cluster"), " of the config makes it a replica of a service.");
}
