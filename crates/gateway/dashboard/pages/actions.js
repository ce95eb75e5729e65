// The one button that fits, and the others.

import { server } from "../api.js";
import { h } from "../dom.js";
import { perform } from "../notices.js";
import { stateWord } from "../words.js";

const LABELS = { reconnect: "Reconnect", reload: "Reload", stop: "Stop", start: "Start" };

/** The button for the one next action of a server, if a button can do it. */
export function actionButton(upstream) {
  if (upstream.next_action === "approve") return h("p", {}, h("a", { href: "#/changes" }, `See what changed in ${upstream.name}`));
  if (upstream.next_action === "login") return loginButton(upstream);
  const action = { reconnect: "reconnect", doctor: "reconnect", configure: "reload", start: "start" }[upstream.next_action];
  return action ? button(upstream, action) : null;
}

/** All that can be asked of a server. */
export function actionButtons(upstream) {
  const fits = upstream.state === "stopped" ? ["start"] : ["reconnect", "reload", "stop"];
  return h("p", { class: "buttons" },
    upstream.next_action === "login" && loginButton(upstream),
    fits.map((action) => button(upstream, action)));
}

/** A login happens on a page of the server's own people, in a tab of its own; the server revives by itself. */
function loginButton({ name }) {
  const link = (url) => h("a", { href: url, target: "_blank", rel: "noopener" }, "open it here");
  const more = (scopes) => (scopes.length ? ` ${name} asks for more than at the last login: ${scopes.join(", ")}.` : "");
  const done = ({ url, added_scopes }) =>
    [`The login to ${name} is in a new tab.${more(added_scopes)} If your browser did not open it: `, link(url)];
  return h("button", {
    type: "button",
    "aria-label": `Log in to ${name}`,
    onclick: async () => {
      const begun = await perform(`${server(name)}/login`, undefined, done);
      if (begun) window.open(begun.url, "_blank", "noopener");
    },
  }, "Log in");
}

function button({ name }, action) {
  const done = (told) => `${name} is ${stateWord(told.state)}`;
  return h("button", {
    type: "button",
    "aria-label": `${LABELS[action]} ${name}`,
    onclick: () => perform(`${server(name)}/${action}`, undefined, done),
  }, LABELS[action]);
}
