// Overview of all servers: a summary, the servers that need attention with a button each, and a table.

import { ribbon, spanOf } from "../charts.js";
import { h } from "../dom.js";
import { asOf, model, past } from "../model.js";
import { TROUBLED, capital, count, percent, span, stateSign, stateWord } from "../words.js";
import { actionButton } from "./actions.js";
import { storeTrouble } from "./replicas.js";
import { events } from "./server.js";

const SHOWN_EVENTS = 12;

export function overview() {
  return { draw: () => (model.fleet ? page(model.fleet) : h("p", {}, "Loading …")) };
}

function page(fleet) {
  const troubled = fleet.upstreams
    .filter(({ state }) => TROUBLED.includes(state))
    .sort((a, b) => TROUBLED.indexOf(a.state) - TROUBLED.indexOf(b.state));
  const store = fleet.cluster && storeTrouble(fleet.cluster);
  return [
    h("h1", {}, verdict(fleet, troubled)),
    h("p", { class: "quiet" }, `gripfast ${fleet.version}, ${model.lost ? "was up" : "up"} for ${span(fleet.uptime_ms)}`),
    (troubled.length > 0 || store) && h("section", { "aria-labelledby": "attention" },
      h("h2", { id: "attention" }, "Needs attention"),
      h("ul", { class: "attention" }, store, troubled.map(trouble))),
    h("section", { "aria-labelledby": "servers" },
      h("h2", { id: "servers" }, "Servers"),
      fleet.upstreams.length === 0 ? empty() : table(fleet.upstreams)),
    h("section", { "aria-labelledby": "happened" },
      h("h2", { id: "happened" }, "Events since you opened this page"),
      events(model.events.filter(({ at }) => at).slice(0, SHOWN_EVENTS), true)),
  ];
}

function verdict({ upstreams, cluster }, troubled) {
  if (model.lost) return "No contact with the gateway";
  if (troubled.length === 0 && cluster?.store === "unreachable") return "The store is unreachable";
  if (upstreams.length === 0) return "No servers are configured";
  if (troubled.length === 0) return `All is well: ${count(upstreams.length, "server")}`;
  return `${troubled.length} of ${count(upstreams.length, "server")} need${troubled.length === 1 ? "s" : ""} attention`;
}

function trouble(upstream) {
  return h("li", { "data-key": upstream.name, class: `state-${upstream.state}` },
    h("p", {}, state(upstream), " ", h("a", { href: `#/server/${encodeURIComponent(upstream.name)}` }, upstream.name),
      upstream.cause && h("span", {}, `: ${upstream.cause}`)),
    h("p", { class: "quiet" }, [
      upstream.next_attempt_ms !== null && `next attempt in ${span(upstream.next_attempt_ms)}`,
      upstream.hint,
    ].filter(Boolean).join(" · ")),
    actionButton(upstream));
}

function table(upstreams) {
  const shown = spanOf(upstreams.map(({ name }) => past(name)), asOf());
  const head = ["Server", "State", capital(shown.words), "Transport", "Tools", "Calls", "Errors", "p95", "Restarts", "Last success"];
  return [h("p", { class: "quiet" }, `The ribbons show the ${shown.words}. Calls, errors and restarts count since the gateway started; p95 is of the last 256 calls.`),
    h("div", { class: "scroll", tabindex: 0, role: "group", "aria-labelledby": "servers" },
    h("table", {},
      h("thead", {}, h("tr", {}, head.map((title) => h("th", { scope: "col" }, title)))),
      h("tbody", {}, upstreams.map((upstream) => row(upstream, shown)))))];
}

function row(upstream, shown) {
  const { name, calls, errors } = upstream;
  return h("tr", { "data-key": name },
    h("th", { scope: "row" }, h("a", { href: `#/server/${encodeURIComponent(name)}` }, name)),
    h("td", {}, state(upstream),
      upstream.state === "starting" && upstream.attempt && h("div", { class: "quiet" }, upstream.attempt.text)),
    h("td", { class: "wide" }, ribbon(name, past(name).states, shown, asOf())),
    h("td", {}, upstream.transport ?? "–"),
    h("td", { class: "number" }, String(upstream.tools)),
    h("td", { class: "number" }, String(calls)),
    h("td", { class: "number" }, errors === 0 ? "0" : `${errors} (${percent(errors, calls)})`),
    h("td", { class: "number" }, span(upstream.p95_ms)),
    h("td", { class: "number" }, String(upstream.restarts)),
    h("td", { class: "number" }, upstream.last_ok_ms === null ? "–" : span(upstream.last_ok_ms)));
}

export function state({ state: word }) {
  return h("span", { class: `badge state-${word}` }, h("span", { "aria-hidden": "true" }, stateSign(word)), ` ${stateWord(word)}`);
}

function empty() {
  return h("p", {}, "Add a server to ", h("code", {}, "gripfast.toml"), ", or import the servers of other MCP clients with ",
    h("code", {}, "gripfast import"), ".");
}
