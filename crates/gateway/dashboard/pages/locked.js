// Shown in place of every page if the gateway requires the admin token and this tab has none.

import { h } from "../dom.js";
import { connect, model } from "../model.js";
import { askForToken } from "../notices.js";

export function locked() {
  return [
    h("h1", {}, "This gateway requires the admin token"),
    model.refused && h("p", { class: "bad", role: "alert" }, model.refused),
    h("p", {}, "Access from another machine requires the admin token of the gateway."),
    h("p", {}, h("button", { class: "main", onclick: async () => await askForToken(model.refused) && connect() }, "Enter the token")),
  ];
}
