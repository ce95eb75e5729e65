// Tools whose definition differs from the approved one: the differences, and buttons to approve them.

import { read, server as path } from "../api.js";
import { h } from "../dom.js";
import { readWithStatus } from "../model.js";
import { perform } from "../notices.js";
import { count } from "../words.js";

export function changes() {
  const servers = readWithStatus(async () => (await read("pins")).servers);

  async function approve(server, tool) {
    const what = tool === undefined ? "pins/approve" : `pins/${encodeURIComponent(tool)}/approve`;
    await perform(`${path(server)}/${what}`, undefined, ({ approved }) => `approved: ${approved.join(", ")}`);
    servers.refresh();
  }

  return {
    leave: servers.leave,
    draw: () => [
      h("h1", {}, "Changes"),
      h("p", { class: "quiet" }, "A tool is pinned when it is first seen. A tool whose definition changes later waits here for approval."),
      servers.problem && h("p", { class: "bad" }, servers.problem.message),
      servers.value && page(servers.value, approve),
    ],
  };
}

function page(servers, approve) {
  const waiting = servers
    .map(({ server, tools }) => ({ server, tools: tools.filter(({ state }) => state === "changed") }))
    .filter(({ tools }) => tools.length > 0);
  if (waiting.length === 0) {
    const pinned = servers.reduce((sum, { tools }) => sum + tools.length, 0);
    return h("p", {}, `Nothing waits for approval: ${count(pinned, "tool")} unchanged.`);
  }
  return waiting.map(({ server, tools }) => h("section", { "data-key": server, "aria-label": server },
    h("h2", {}, h("a", { href: `#/server/${encodeURIComponent(server)}` }, server), `: ${count(tools.length, "changed tool")}`),
    tools.map((tool) => changedTool(server, tool, approve)),
    tools.length > 1 && h("p", { class: "buttons" }, h("button", {
      type: "button",
      onclick: () => approve(server),
    }, `Approve all of ${server}`))));
}

function changedTool(server, tool, approve) {
  const label = `${tool.tool} of ${server}`;
  return h("article", { "data-key": tool.tool, class: "change", "aria-label": label },
    h("h3", {}, tool.tool, tool.renamed_to && ` was renamed to ${tool.renamed_to}`),
    tool.suspicions.map(({ path: where, what }) => h("p", { class: "bad" }, `Suspicious text in ${where}: ${what}`)),
    h("dl", { class: "differences" }, tool.differences.map(({ path: where, before, after }) => h("div", {},
      h("dt", {}, where || "whole definition"),
      h("dd", {},
        before !== null && h("del", {}, before),
        after !== null && h("ins", {}, after))))),
    h("p", { class: "buttons" }, h("button", {
      type: "button",
      class: "main",
      "aria-label": `Approve ${label}`,
      onclick: () => approve(server, tool.tool),
    }, "Approve")));
}
