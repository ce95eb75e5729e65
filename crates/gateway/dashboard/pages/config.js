// The config as it is in force: every setting, without secrets, and where it comes from.

import { read } from "../api.js";
import { h } from "../dom.js";
import { changed } from "../model.js";
import { refusal } from "../notices.js";

const SOURCES = { default: "default", command_line: "command line" };

export function config() {
  let told = null;
  let problem = null;
  let all = false;

  const look = () => read("config")
    .then((config) => { [told, problem] = [config, null]; }, (error) => { problem = error; })
    .finally(changed);
  look();

  return {
    draw: () => [
      h("h1", {}, "Config"),
      problem && refusal(problem, look),
      told && h("p", {}, told.file ? ["What is in force, from ", h("code", {}, told.file), "."] : "No config file: these are the built-in servers."),
      told && h("p", {}, h("label", {},
        h("input", {
          type: "checkbox",
          "data-own": true,
          onchange: (event) => {
            all = event.target.checked;
            changed();
          },
        }),
        " also what nobody set")),
      told && tables(told.settings.filter(({ from }) => all || from !== "default")),
    ],
  };
}

/** A table for the gateway, and one for each server. */
function tables(settings) {
  const groups = new Map();
  for (const setting of settings) {
    const [first, second] = setting.path.split(".");
    const name = first === "gateway" ? "gateway" : `${first}.${second}`;
    groups.set(name, [...(groups.get(name) ?? []), setting]);
  }
  if (groups.size === 0) return h("p", { class: "quiet" }, "Everything is as it comes.");
  return [...groups].map(([name, rows]) => h("section", { "data-key": name, "aria-label": name },
    h("h2", {}, name),
    h("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": `Settings of ${name}` },
      h("table", {},
        h("thead", {}, h("tr", {}, ["Setting", "Value", "From"].map((title) => h("th", { scope: "col" }, title)))),
        h("tbody", {}, rows.map(({ path, value, from, line }) => h("tr", { "data-key": path },
          h("th", { scope: "row" }, path.slice(name.length + 1)),
          h("td", { class: "code value" }, value),
          h("td", { class: "quiet" }, SOURCES[from] ?? `line ${line}`))))))));
}
