// A form made of a tool's own schema, and what the tool answered.

import { read, server as path } from "../api.js";
import { h } from "../dom.js";
import { changed, model } from "../model.js";
import { perform } from "../notices.js";

export function tryTool(server, name) {
  let tools = null;
  let problem = null;
  let answer = null;
  let busy = false;

  if (server) {
    read(`${path(server)}/tools`)
      .then((offered) => { tools = offered.tools; }, (error) => { problem = error.message; })
      .finally(changed);
  }

  async function send(event, tool) {
    event.preventDefault();
    let values;
    try {
      values = fill(event.target, tool.inputSchema);
    } catch (error) {
      answer = { error: error.message };
      changed();
      return;
    }
    busy = true;
    changed();
    const body = { tool: tool.name, arguments: values };
    answer = await perform(`${path(server)}/call`, body, () => `${server} answered`) ?? { error: "It was not called; see the message below." };
    busy = false;
    changed();
  }

  return {
    draw: () => [
      h("h1", {}, "Try a tool"),
      servers(server),
      problem && h("p", { class: "bad" }, problem),
      tools && choose(server, name, tools),
      tools && form(tools.find((tool) => tool.name === name), send, busy),
      answer && shown(answer),
    ],
  };
}

function servers(chosen) {
  const names = model.fleet?.upstreams.map(({ name }) => name) ?? [];
  return h("nav", { "aria-label": "Servers", class: "choices" }, names.map((name) =>
    h("a", { href: `#/try/${encodeURIComponent(name)}`, "aria-current": name === chosen ? "true" : null }, name)));
}

function choose(server, chosen, tools) {
  return h("nav", { "aria-label": "Tools", class: "choices" }, tools.map(({ name }) =>
    h("a", { href: `#/try/${encodeURIComponent(server)}/${encodeURIComponent(name)}`, "aria-current": name === chosen ? "true" : null }, name)));
}

function form(tool, send, busy) {
  if (!tool) return null;
  const fields = Object.entries(tool.inputSchema?.properties ?? {});
  const required = tool.inputSchema?.required ?? [];
  return h("form", { "data-key": tool.name, onsubmit: (event) => send(event, tool) },
    tool.description && h("p", {}, tool.description),
    fields.map(([name, schema]) => field(name, schema, required.includes(name))),
    h("p", { class: "buttons" }, h("button", { class: "main", disabled: busy }, busy ? "Calling …" : `Call ${tool.name}`)));
}

function field(name, schema, required) {
  const id = `field-${name}`;
  const common = { id, name, "data-own": true, required, "aria-describedby": schema.description ? `${id}-help` : null };
  return h("div", { class: "field" },
    h("label", { for: id }, name, required && h("span", { "aria-hidden": "true" }, " *")),
    control(schema, common),
    schema.description && h("p", { class: "quiet", id: `${id}-help` }, schema.description));
}

function control(schema, common) {
  const choices = choicesOf(schema);
  if (choices) {
    return h("select", common,
      h("option", { value: "" }, unsaid(schema)),
      choices.map((value) => h("option", { value: JSON.stringify(value) }, String(value))));
  }
  const placeholder = schema.default === undefined ? null : unsaid(schema);
  switch (schema.type) {
    case "integer":
    case "number":
      return h("input", { ...common, placeholder, type: "number", step: schema.type === "integer" ? 1 : "any" });
    case "string":
      return h("textarea", { ...common, placeholder, rows: 1 });
    default:
      return h("textarea", { ...common, rows: 3, placeholder: placeholder ?? "JSON", class: "code" });
  }
}

function choicesOf(schema) {
  if (Array.isArray(schema.enum)) return schema.enum;
  return schema.type === "boolean" ? [true, false] : null;
}

/** What holds for an argument that nobody fills in: whatever the server takes for it. */
function unsaid(schema) {
  return schema.default === undefined ? "–" : `default: ${JSON.stringify(schema.default)}`;
}

/** The arguments as the schema wants them. What nobody filled in is left out. */
function fill(form, schema) {
  const values = {};
  for (const [name, wanted] of Object.entries(schema?.properties ?? {})) {
    const input = form.elements.namedItem(name);
    if (input.value !== "") values[name] = read1(name, input.value, wanted);
  }
  return values;
}

function read1(name, text, wanted) {
  if (wanted.type === "string" && !choicesOf(wanted)) return text;
  if (wanted.type === "integer" || wanted.type === "number") return Number(text);
  try {
    return JSON.parse(text);
  } catch {
    throw new Error(`“${name}” is not valid JSON`);
  }
}

function shown(answer) {
  if (answer.error) return h("section", {}, h("h2", {}, "Answer"), h("p", { class: "bad" }, answer.error));
  const { result } = answer;
  return h("section", {}, h("h2", {}, result.isError ? "The tool says it failed" : "Answer"),
    (result.content ?? []).map(content),
    h("details", {}, h("summary", {}, "As it came"), h("pre", { tabindex: 0 }, JSON.stringify(result, null, 2))));
}

function content(item) {
  switch (item.type) {
    case "text":
      return h("pre", { tabindex: 0 }, item.text);
    case "image":
      return h("img", { src: `data:${item.mimeType};base64,${item.data}`, alt: "The picture that the tool answered with" });
    default:
      return h("pre", { tabindex: 0 }, JSON.stringify(item, null, 2));
  }
}
