// The config in force: every setting without secrets, and its source.

import { read } from "../api.js";
import { h } from "../dom.js";
import { changed } from "../model.js";
import { refusal } from "../notices.js";

const SOURCES = { default: "default", command_line: "command line" };

export function config() {
  let config = null;
  let problem = null;
  let all = false;

  const refresh = () => read("config")
    .then((view) => { [config, problem] = [view, null]; }, (error) => { problem = error; })
    .finally(changed);
  refresh();

  return {
    draw: () => [
      h("h1", {}, "Config"),
      problem && refusal(problem, refresh),
      config && h("p", {}, config.file ? ["Settings in force, from ", h("code", {}, config.file), "."] : "No config file: these are the built-in servers."),
      config && h("p", {}, h("label", {},
        h("input", {
          type: "checkbox",
          "data-own": true,
          onchange: (event) => {
            all = event.target.checked;
            changed();
          },
        }),
        " show defaults")),
      config && tables(config.settings.filter(({ from }) => all || from !== "default")),
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
  if (groups.size === 0) return h("p", { class: "quiet" }, "All settings have their default values.");
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
