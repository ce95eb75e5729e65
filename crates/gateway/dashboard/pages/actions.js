// Buttons for the actions on a server.

import { server } from "../api.js";
import { h } from "../dom.js";
import { perform } from "../notices.js";
import { stateWord } from "../words.js";

const LABELS = { reconnect: "Reconnect", reload: "Reload", stop: "Stop", start: "Start" };

/** The button for the next action of a server, if there is a button for it. */
export function actionButton(upstream) {
  if (upstream.next_action === "approve") return h("p", {}, h("a", { href: "#/changes" }, `See what changed in ${upstream.name}`));
  if (upstream.next_action === "login") return loginButton(upstream);
  const action = { reconnect: "reconnect", doctor: "reconnect", configure: "reload", start: "start" }[upstream.next_action];
  return action ? button(upstream, action) : null;
}

/** Buttons for all actions that apply to a server. */
export function actionButtons(upstream) {
  const fits = upstream.state === "stopped" ? ["start"] : ["reconnect", "reload", "stop"];
  return h("p", { class: "buttons" },
    upstream.next_action === "login" && loginButton(upstream),
    fits.map((action) => button(upstream, action)));
}

/** Opens the login page of the authorization server in a new tab. The server reconnects by itself after the login. */
function loginButton({ name }) {
  const link = (url) => h("a", { href: url, target: "_blank", rel: "noopener" }, "open it here");
  const more = (scopes) => (scopes.length ? ` ${name} requests additional scopes: ${scopes.join(", ")}.` : "");
  const done = ({ url, added_scopes }) =>
    [`The login page of ${name} opens in a new tab.${more(added_scopes)} If your browser blocked it: `, link(url)];
  return h("button", {
    type: "button",
    "aria-label": `Log in to ${name}`,
    onclick: async () => {
      const started = await perform(`${server(name)}/login`, undefined, done);
      if (started) window.open(started.url, "_blank", "noopener");
    },
  }, "Log in");
}

function button({ name }, action) {
  const done = (status) => `${name} is ${stateWord(status.state)}`;
  return h("button", {
    type: "button",
    "aria-label": `${LABELS[action]} ${name}`,
    onclick: () => perform(`${server(name)}/${action}`, undefined, done),
  }, LABELS[action]);
}
