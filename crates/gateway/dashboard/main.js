// Page routing. Addresses are `#/`, `#/server/NAME`, `#/calls` and so on, so that they can be bookmarked.

import { signIn } from "./api.js";
import { draw, h } from "./dom.js";
import { begin, connect, model, onChange } from "./model.js";
import { notify } from "./notices.js";
import { calls } from "./pages/calls.js";
import { changes } from "./pages/changes.js";
import { clients } from "./pages/clients.js";
import { config } from "./pages/config.js";
import { locked } from "./pages/locked.js";
import { overview } from "./pages/overview.js";
import { replicas } from "./pages/replicas.js";
import { server } from "./pages/server.js";
import { tryTool } from "./pages/try.js";
import { moment } from "./words.js";

const PAGES = [
  { path: "", title: "Overview", page: overview },
  { path: "calls", title: "Calls", page: calls },
  { path: "changes", title: "Changes", page: changes },
  { path: "clients", title: "Clients", page: clients },
  { path: "replicas", title: "Replicas", page: replicas, isListed: () => Boolean(model.fleet?.cluster) },
  { path: "config", title: "Config", page: config },
  { path: "try", title: "Try a tool", page: tryTool },
  { path: "server", title: null, page: server },
];

let shown = { page: null, rest: null };

function route() {
  const [, path = "", ...rest] = location.hash.split("/");
  const known = PAGES.find((page) => page.path === path) ?? PAGES[0];
  return { page: known, rest: rest.map(decodeURIComponent) };
}

function show() {
  const { page, rest } = route();
  const key = [page.path, ...rest].join("/");
  if (shown.key !== key) {
    shown.view?.leave?.();
    shown = { key, view: page.page(...rest) };
    document.title = `${page.title ?? rest[0]} · gripfast`;
    draw(document.getElementById("page"));
  }
  draw(document.getElementById("pages"), PAGES.filter(({ title, isListed }) => title && isListed?.() !== false).map(({ path, title }) =>
    h("a", { href: `#/${path}`, "aria-current": path === page.path ? "page" : null }, title)));
  draw(document.getElementById("connection"), connection());
  document.body.classList.toggle("lost", model.lost);
  draw(document.getElementById("contact"), model.lost && h("p", {},
    h("strong", {}, `No contact with the gateway since ${moment(model.contact)}.`),
    " The page shows the data of that time and retries every few seconds; ", h("code", {}, "gripfast serve"), " starts a gateway."));
  draw(document.getElementById("page"), model.locked ? locked() : shown.view.draw());
}

function connection() {
  if (model.lost) return h("span", { class: "bad" }, "✗ no contact");
  if (model.problem) return h("span", { class: "bad" }, `✗ ${model.problem}`);
  if (!model.connected) return h("span", { class: "warn" }, "↻ connecting");
  return h("span", { class: "good" }, "● live");
}

/** Uses the code of a sign-in link, if the address has one, and removes it from the address and the history. */
async function useSignInLink() {
  const [, path, code] = location.hash.split("/");
  if (path !== "sign-in") return false;
  history.replaceState(null, "", "#/");
  try {
    await signIn(code ?? "");
    notify("Signed in for this tab.");
  } catch (error) {
    notify(`Sign-in failed: ${error.hint ? `${error.message} – ${error.hint}` : error.message}`, "bad");
  }
  return true;
}

addEventListener("hashchange", async () => {
  if (await useSignInLink()) connect();
  show();
  // Also scrolls to the page. The first page gets no focus, so that the keyboard starts at the link that skips to content.
  document.getElementById("page").focus();
});
onChange(show);
await useSignInLink();
begin();
show();
