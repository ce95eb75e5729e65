// A form generated from a tool's input schema, and the result of the call.

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
      values = fill(tool.inputSchema);
    } catch (error) {
      answer = { error: error.message };
      changed();
      return;
    }
    busy = true;
    changed();
    const body = { tool: tool.name, arguments: values };
    answer = await perform(`${path(server)}/call`, body, () => `${server} answered`) ?? { error: "The tool was not called; see the message below." };
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
  return h("form", { "data-key": tool.name, onsubmit: (event) => send(event, tool) },
    tool.description && h("p", {}, tool.description),
    fields("", tool.inputSchema),
    h("p", { class: "buttons" }, h("button", { class: "main", disabled: busy }, busy ? "Calling …" : `Call ${tool.name}`)));
}

/** `path` identifies the field within the form; `name` is the name in the schema. */
function field(path, name, schema, required) {
  const id = `field-${path}`;
  const common = { id, name: path, "data-own": true, required, "aria-describedby": schema.description ? `${id}-help` : null };
  const isList = isListOfObjects(schema);
  return h("div", { class: "field" },
    h("label", isList ? { id: `${id}-label` } : { for: id }, name, required && h("span", { "aria-hidden": "true" }, " *")),
    isList ? list(path, name, schema) : control(schema, common),
    schema.description && h("p", { class: "quiet", id: `${id}-help` }, schema.description),
    isNested(schema) && h("details", {}, h("summary", {}, `Schema of ${name}`), h("pre", { tabindex: 0 }, JSON.stringify(schema, null, 2))));
}

function isListOfObjects({ type, items }) {
  return type === "array" && items?.type === "object" && Object.keys(items.properties ?? {}).length > 0;
}

function isNested({ type }) {
  return type === "array" || type === "object";
}

/** The items of an array of objects: fields for each, with buttons that add and remove items. */
function list(path, name, schema) {
  let made = 0;
  const items = h("div", {});
  const number = () => [...items.children].forEach((item, index) => {
    item.querySelector("legend").textContent = `${name}: item ${index + 1}`;
    item.querySelector(":scope > .buttons button").textContent = `Remove item ${index + 1} of ${name}`;
  });
  const add = () => {
    const at = `${path}-${made++}`;
    const item = h("fieldset", { "data-path": at }, h("legend", {}),
      fields(at, schema.items),
      h("p", { class: "buttons" }, h("button", { type: "button", onclick: () => { item.remove(); number(); } }, "Remove")));
    items.append(item);
    number();
    item.querySelector("input, select, textarea")?.focus();
  };
  return h("div", { id: `field-${path}`, class: "list", role: "group", "aria-labelledby": `field-${path}-label`, "data-own": true },
    items, h("p", { class: "buttons" }, h("button", { type: "button", onclick: add }, `Add an item to ${name}`)));
}

function fields(path, schema) {
  const required = schema?.required ?? [];
  return Object.entries(schema?.properties ?? {}).map(([name, wanted]) =>
    field(path ? `${path}-${name}` : name, name, wanted, required.includes(name)));
}

function control(schema, common) {
  const choices = choicesOf(schema);
  if (choices) {
    return h("select", common,
      h("option", { value: "" }, defaultText(schema)),
      choices.map((value) => h("option", { value: JSON.stringify(value) }, String(value))));
  }
  const placeholder = schema.default === undefined ? null : defaultText(schema);
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

/** The default of an argument that is left empty, which the server applies. */
function defaultText(schema) {
  return schema.default === undefined ? "–" : `default: ${JSON.stringify(schema.default)}`;
}

/** The arguments in the types of the schema. Empty fields are left out. */
function fill(schema, path = "") {
  const values = {};
  for (const [name, wanted] of Object.entries(schema?.properties ?? {})) {
    const at = path ? `${path}-${name}` : name;
    const input = document.getElementById(`field-${at}`);
    if (isListOfObjects(wanted)) {
      const items = [...input.querySelectorAll(":scope > div > fieldset")];
      const isWanted = items.length > 0 || schema.required?.includes(name);
      if (isWanted) values[name] = items.map((item) => fill(wanted.items, item.dataset.path));
    } else if (input.value !== "") {
      values[name] = parseValue(name, input.value, wanted);
    }
  }
  return values;
}

function parseValue(name, text, wanted) {
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
  return h("section", {}, h("h2", {}, result.isError ? "The tool reported an error" : "Answer"),
    (result.content ?? []).map(content),
    h("details", {}, h("summary", {}, "Raw result"), h("pre", { tabindex: 0 }, JSON.stringify(result, null, 2))));
}

function content(item) {
  switch (item.type) {
    case "text":
      return h("pre", { tabindex: 0 }, item.text);
    case "image":
      return h("img", { src: `data:${item.mimeType};base64,${item.data}`, alt: "Image returned by the tool" });
    default:
      return h("pre", { tabindex: 0 }, JSON.stringify(item, null, 2));
  }
}
