// In place of every page, where the gateway is looked at from another machine and no token was given.

import { h } from "../dom.js";
import { attend, model } from "../model.js";
import { askForToken } from "../notices.js";

export function locked() {
  return [
    h("h1", {}, "This gateway asks for its token"),
    model.refused && h("p", { class: "bad", role: "alert" }, model.refused),
    h("p", {}, "From another machine than its own it shows itself only to those who have its admin token."),
    h("p", {}, h("button", { class: "main", onclick: async () => await askForToken(model.refused) && attend() }, "Enter the token")),
  ];
}
