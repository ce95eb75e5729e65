// Steps of the dashboard tests: user actions, and what the page must show. `node drive.mjs STORY URL TOKEN PICTURES`
// exits with an error that names the first difference.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { join } from "node:path";

const require = createRequire(join(process.env.PEER_MODULES, "package.json"));
const { chromium } = require("playwright-core");
const axe = require("axe-core");

const [story, url, token, pictures] = process.argv.slice(2);
/** Timeout of every wait, long enough for a busy machine. */
const PATIENCE = 30_000;

const PAGES = {
  overview: "#/",
  server: "#/server/steady",
  "broken-server": "#/server/broken",
  "changed-server": "#/server/upgraded",
  calls: "#/calls",
  changes: "#/changes",
  clients: "#/clients",
  config: "#/config",
  try: "#/try",
  "try-a-tool": "#/try/steady/add",
  nobody: "#/server/nobody",
};

const STORIES = { signin, lost, narrow, objects, crash, reconnect, elsewhere, ribbon, form, calls, approve, login, contents, keyboard, pages, mistakes, replicas, lost_replica: lostReplica, lost_store: lostStore, hostile_replica: hostileReplica };

const browser = await chromium.launch({
  executablePath: process.env.PEER_CHROMIUM,
  // In a container it runs as root, and /dev/shm is small.
  args: ["--no-sandbox", "--disable-dev-shm-usage"],
});
try {
  await STORIES[story]();
} finally {
  await browser.close();
}

/** A sign-in link works once, and neither its code nor the admin token stays in the browser. */
async function signin() {
  const { code } = JSON.parse(await act("sign_in_link"));
  const asked = [];
  const enter = (page) => {
    page.on("request", (request) => asked.push(request.url()));
    return page.goto(`${url}/#/sign-in/${code}`);
  };
  const page = await open("#/", "light", enter);
  await page.getByRole("status").getByText("Signed in for this tab.").waitFor();
  assert.equal(new URL(page.url()).hash, "#/");
  const kept = await page.evaluate(() => JSON.stringify([{ ...sessionStorage }, { ...localStorage }, document.cookie]));
  assert.ok(!kept.includes(token) && !kept.includes(code), "neither the token nor the code is kept");
  assert.ok(!asked.some((address) => address.includes(code)), "the code is in no address that was asked for");
  await page.getByRole("link", { name: "steady" }).first().click();
  await page.getByRole("button", { name: "Reconnect steady" }).click();
  await page.getByRole("status").getByText(/^steady is /).waitFor();
  await page.goto(`${url}/#/sign-in/${code}`);
  await page.getByText(/^Sign-in failed: the sign-in link was already used or is older than one minute/).waitFor();
  page.expects(/401/);
  await page.done();
}

/** A gateway that no longer answers is not shown as healthy. */
async function lost() {
  let isGone = false;
  const page = await open("#/", "light", async (page) => {
    await page.route(/\/api\/v1\/(?!events)/, async (route) => {
      if (isGone) return route.abort("connectionrefused");
      if (!route.request().url().endsWith("/status")) return route.continue();
      const fleet = await (await route.fetch()).json();
      return route.fulfill({ json: { ...fleet, upstreams: fleet.upstreams.filter(({ name }) => name === "steady") } });
    });
    await page.goto(`${url}/#/`);
  });
  const well = page.getByRole("heading", { name: "All is well: 1 server" });
  await well.waitFor();
  const grey = () => page.evaluate(() => getComputedStyle(document.querySelector("main")).filter);
  assert.equal(await grey(), "none");
  isGone = true;
  await page.getByRole("heading", { name: "No contact with the gateway" }).waitFor();
  await page.getByRole("alert").getByText(/^No contact with the gateway since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.$/).waitFor();
  await page.getByText("✗ no contact").waitFor();
  assert.equal(await well.count(), 0);
  assert.equal(await grey(), "grayscale(1)");
  await picture(page, "lost");
  isGone = false;
  await well.waitFor();
  await page.getByRole("alert").getByText(/^No contact/).waitFor({ state: "detached" });
  assert.equal(await grey(), "none");
  page.expects(/ERR_CONNECTION_REFUSED/);
  await page.done();
}

/** At 400 pixels no page is wider than the window, and a wider table shows at its edge that it scrolls. */
async function narrow() {
  await act("upstreams/steady/call", { tool: "add", arguments: { a: 1, b: 2 } });
  for (const [name, hash] of Object.entries(PAGES)) {
    const page = await open(hash);
    await page.setViewportSize({ width: 400, height: 800 });
    await page.getByRole("heading", { level: 1 }).waitFor();
    const { wide, boxes } = await page.evaluate(() => ({
      wide: document.documentElement.scrollWidth,
      boxes: [...document.querySelectorAll(".scroll")].map((box) => ({
        scrolls: box.scrollWidth > box.clientWidth,
        shadows: getComputedStyle(box).backgroundImage.split("linear-gradient").length - 1,
        moves: getComputedStyle(box).backgroundAttachment,
      })),
    }));
    assert.ok(wide <= 400, `${name} is ${wide} pixels wide`);
    if (name === "overview" || name === "calls") assert.ok(boxes.some(({ scrolls }) => scrolls), `${name} has a table that scrolls`);
    for (const { shadows, moves } of boxes) {
      assert.equal(shadows, 4, name);
      assert.match(moves, /^local, local, scroll, scroll/);
    }
    await picture(page, `${name}-narrow`);
    if (name === "nobody") page.expects(/404/);
    await page.done();
  }
}

/** Arrays of objects are filled in item by item, and their schema can be read. */
async function objects() {
  const items = {
    type: "object",
    required: ["name"],
    properties: { name: { type: "string" }, count: { type: "integer" }, tags: { type: "array", items: { type: "object", properties: { tag: { type: "string" } } } } },
  };
  const inputSchema = { type: "object", required: ["people"], properties: { people: { type: "array", items }, more: { type: "array", items } } };
  let sent = null;
  const page = await open("", "light", async (page) => {
    await page.route("**/api/v1/upstreams/steady/tools", (route) => route.fulfill({ json: { server: "steady", tools: [{ name: "invite", inputSchema }] } }));
    await page.route("**/api/v1/upstreams/steady/call", (route) => {
      sent = route.request().postDataJSON().arguments;
      return route.fulfill({ json: { result: { content: [{ type: "text", text: "invited" }] } } });
    });
    await page.goto(`${url}/#/try/steady/invite`);
  });
  await page.getByText("Schema of people").click();
  await page.locator("details pre").first().getByText('"required"').waitFor();
  const add = page.getByRole("button", { name: "Add an item to people" });
  await add.click();
  await add.click();
  await add.click();
  await page.getByRole("button", { name: "Remove item 2 of people" }).click();
  const item = (number) => page.getByRole("group", { name: `people: item ${number}` });
  await item(1).getByLabel("name *").fill("Ada");
  await item(1).getByLabel("count").fill("2");
  await item(2).getByLabel("name *").fill("Bob");
  await item(2).getByRole("button", { name: "Add an item to tags" }).click();
  await item(2).getByLabel("tag", { exact: true }).fill("new");
  await picture(page, "objects");
  assert.deepEqual(await axeSays(page), []);
  await page.getByRole("button", { name: "Call invite" }).click();
  await page.locator("section pre").getByText("invited", { exact: true }).waitFor();
  assert.deepEqual(sent, { people: [{ name: "Ada", count: 2 }, { name: "Bob", tags: [{ tag: "new" }] }] });
  await page.done();
}

async function crash() {
  const page = await open("#/");
  const row = page.getByRole("row", { name: /steady/ });
  const ready = row.locator(".badge", { hasText: "ready" });
  await ready.waitFor();
  await page.evaluate(() => { window.wasHere = true; });
  // The call has no answer: the server exits first.
  await act("upstreams/steady/call", { tool: "crash" });
  const happened = page.getByRole("region", { name: "Events since you opened this page" });
  await happened.getByText(/to reconnecting/).first().waitFor();
  await happened.getByText(/is back after/).first().waitFor();
  await ready.waitFor();
  await row.getByRole("cell", { name: "1", exact: true }).first().waitFor();
  assert.ok(await page.evaluate(() => window.wasHere), "the page was not loaded again");
  await picture(page, "crash");
  await page.done();
}

async function reconnect() {
  const page = await open("#/server/steady");
  const pid = page.locator("dd", { hasText: /^stdio, pid \d+/ });
  const before = await pid.textContent();
  await page.getByRole("button", { name: "Reconnect steady" }).click();
  const dialog = page.getByRole("dialog", { name: "Admin token" });
  // A wrong token is refused, and the dialog asks again.
  await dialog.getByLabel("Token").fill("not the token");
  await dialog.getByRole("button", { name: "Use it" }).click();
  await dialog.getByText("The gateway refused the token: wrong admin token.").waitFor();
  assert.equal(await dialog.getByLabel("Token").inputValue(), "");
  await picture(page, "token");
  await dialog.getByLabel("Token").fill(token);
  await dialog.getByRole("button", { name: "Use it" }).click();
  await page.getByRole("status").getByText(/^steady is /).waitFor();
  await page.waitForFunction((before) => {
    const facts = [...document.querySelectorAll("dd")].map((fact) => fact.textContent);
    return facts.some((fact) => /^stdio, pid \d+/.test(fact) && fact !== before);
  }, before, { timeout: PATIENCE });
  // The browser itself logs the refused request.
  page.expects(/401/);
  await page.done();
}

/** As from another machine, where nothing can be read without the token. */
async function elsewhere() {
  const page = await open("#/", "light", async (page) => {
    await page.route("**/api/v1/**", async (route) => {
      if (await route.request().headerValue("authorization") === `Bearer ${token}`) return route.continue();
      const error = { code: "unauthorized", text: "the admin token is required" };
      return route.fulfill({ status: 401, contentType: "application/json", body: JSON.stringify({ error }) });
    });
    await page.goto(`${url}/#/`);
    await page.getByRole("heading", { name: "This gateway requires the admin token" }).waitFor();
    assert.deepEqual(await axeSays(page), []);
    const enter = page.getByRole("button", { name: "Enter the token" });
    await enter.click();
    const dialog = page.getByRole("dialog", { name: "Admin token" });
    await dialog.getByLabel("Token").fill("not the token");
    await dialog.getByRole("button", { name: "Use it" }).click();
    await page.getByText("The gateway refused the token: the admin token is required.").waitFor();
    await enter.click();
    await dialog.getByLabel("Token").fill(token);
    await dialog.getByRole("button", { name: "Use it" }).click();
  });
  await page.getByRole("row", { name: /steady/ }).locator(".badge", { hasText: "ready" }).waitFor();
  // Events arrive on the stream, not only by polling.
  await act("upstreams/steady/call", { tool: "crash" });
  const happened = page.getByRole("region", { name: "Events since you opened this page" });
  await happened.getByText(/is back after/).first().waitFor();
  page.expects(/401/);
  await page.done();
}

/** A gateway that has run for longer than a day, with an outage in it. */
async function ribbon() {
  const page = await open("#/", "light", async (page) => {
    await page.route("**/api/v1/history", (route) => {
      const ago = (hours) => Date.now() - hours * 3600 * 1000;
      const states = [{ at: ago(30), state: "ready" }, { at: ago(12), state: "parked" }, { at: ago(6), state: "ready" }];
      return route.fulfill({ json: { servers: [{ name: "steady", states, minutes: [] }] } });
    });
    await page.goto(`${url}/#/`);
  });
  const picture = page.getByRole("img", { name: /^steady, last 24 hours: ready since .*; available 75.0 % of the time, 1 outage, longest 6 h$/ });
  await picture.waitFor();
  const part = async (state, name) => Number(await picture.locator(`rect.fill-${state}`).first().getAttribute(name));
  const near = (is, wanted) => assert.ok(Math.abs(is - wanted) < 5, `${is} is not about ${wanted}`);
  near(await part("ready", "x"), 0);
  near(await part("ready", "width"), 500);
  near(await part("parked", "x"), 500);
  near(await part("parked", "width"), 250);
  await page.done();
}

async function login() {
  const page = await open("#/");
  await page.evaluate((token) => sessionStorage.setItem("gripfast.token", token), token);
  const opened = page.context().waitForEvent("page");
  await page.getByRole("button", { name: "Log in to notes" }).click();
  // The authorization server agrees at once, and sends the browser back.
  const tab = await opened;
  await tab.getByText("Done: you are logged in to `notes`").waitFor();
  assert.equal(new URL(tab.url()).origin, new URL(url).origin);
  await page.getByRole("row", { name: /notes/ }).locator(".badge", { hasText: "ready" }).waitFor();
  await picture(page, "login");
  await page.done();
}

async function form() {
  const page = await open("#/try/steady/add");
  await page.evaluate((token) => sessionStorage.setItem("gripfast.token", token), token);
  await page.getByLabel("a *").fill("2");
  await page.getByLabel("b *").fill("3");
  await page.getByRole("button", { name: "Call add" }).click();
  const answer = page.getByRole("heading", { name: "Answer" });
  await answer.waitFor();
  await page.locator("section pre").getByText("5").first().waitFor();
  await picture(page, "form");
  await page.getByRole("navigation", { name: "Tools" }).getByRole("link", { name: "fail", exact: true }).click();
  await page.getByRole("button", { name: "Call fail" }).click();
  await page.getByRole("heading", { name: "The tool reported an error" }).waitFor();
  await unsaid(page);
  await page.done();
}

/** Empty optional fields are not sent. The calls are intercepted. */
async function unsaid(page) {
  const sent = [];
  await page.route("**/api/v1/upstreams/steady/call", (route) => {
    sent.push(route.request().postDataJSON().arguments);
    return route.fulfill({ json: { result: { content: [{ type: "text", text: `answer ${sent.length}` }] } } });
  });
  const call = async (tool) => {
    const answer = `answer ${sent.length + 1}`;
    await page.getByRole("button", { name: `Call ${tool}` }).click();
    await page.locator("section pre").getByText(answer, { exact: true }).waitFor();
  };
  const tools = page.getByRole("navigation", { name: "Tools" });
  await tools.getByRole("link", { name: "crash", exact: true }).click();
  await call("crash");
  await tools.getByRole("link", { name: "misbehave", exact: true }).click();
  await page.getByLabel("how *").selectOption("hang");
  await page.getByLabel("own_group").selectOption("false");
  await call("misbehave");
  assert.deepEqual(sent, [{}, { how: "hang", own_group: false }]);
}

async function calls() {
  const page = await open("#/calls");
  await page.getByText("No calls.").waitFor();
  await act("upstreams/steady/call", { tool: "add", arguments: { a: 1, b: 2 } });
  await page.getByRole("row", { name: /steady add done/ }).waitFor();
  await act("upstreams/steady/call", { tool: "crash" });
  await page.getByRole("row", { name: /steady crash unknown/ }).waitFor();
  await page.getByLabel("Outcome").selectOption("unknown");
  await page.getByRole("row", { name: /steady add done/ }).waitFor({ state: "detached" });
  await page.getByRole("row", { name: /steady crash unknown/ }).waitFor();
  await page.getByLabel("Outcome").selectOption("");
  await page.getByLabel("Tool").fill("ad");
  await page.getByRole("row", { name: /steady crash/ }).waitFor({ state: "detached" });
  await page.getByRole("row", { name: /steady add done/ }).waitFor();
  await detailed(page);
  await page.done();
}

/** A call has a date and details; a server of another process that shares the ledger has no page here. */
async function detailed(page) {
  await page.route("**/api/v1/calls?*", async (route) => {
    const answer = await (await route.fetch()).json();
    const [call] = answer.calls.filter(({ tool }) => tool === "add");
    answer.calls.push({ ...call, id: "another", server: "theirs" });
    return route.fulfill({ json: answer });
  });
  const theirs = page.getByRole("row", { name: /theirs add done/ });
  await theirs.getByText(/^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$/).waitFor();
  assert.equal(await theirs.getByRole("link").count(), 0);
  assert.equal(await page.getByRole("row", { name: /steady add done/ }).getByRole("link").count(), 1);
  await theirs.getByRole("button", { name: /^Show details of add/ }).click();
  await page.getByText("theirs, which is not a server of this gateway").waitFor();
  await page.unrouteAll({ behavior: "ignoreErrors" });
}

async function approve() {
  const page = await open("#/");
  await page.evaluate((token) => sessionStorage.setItem("gripfast.token", token), token);
  await page.getByRole("link", { name: "See what changed in upgraded" }).click();
  const change = page.getByRole("article", { name: "echo of upgraded" });
  await change.getByText("Returns its text, in capitals if requested.").waitFor();
  await picture(page, "approve");
  await change.getByRole("button", { name: "Approve echo of upgraded" }).click();
  await page.getByRole("status").getByText("approved: echo").waitFor();
  await page.getByText(/^Nothing waits for approval/).waitFor();
  await page.done();
}

async function contents() {
  await act("upstreams/steady/call", { tool: "add", arguments: { a: 1, b: 2 } });
  await act("upstreams/steady/call", { tool: "fail" });
  await begin("a-client");
  const page = await open("#/");
  const there = (role, name, within = page) => within.getByRole(role, { name }).first().waitFor();

  await there("heading", "1 of 3 servers needs attention");
  const attention = page.getByRole("region", { name: "Needs attention" }).getByRole("listitem");
  await attention.getByText(/no-such-program/).waitFor();
  assert.equal(await attention.getByRole("button").count(), 1, "one button for what needs attention");
  const row = page.getByRole("region", { name: "Servers" }).getByRole("row", { name: /steady/ });
  await there("cell", "stdio", row);
  await there("img", /^steady, last .*: ready since/, row);

  await page.getByRole("link", { name: "steady" }).first().click();
  await there("heading", /^steady\s+ready/);
  await there("img", /^steady, last .*: ready since/);
  await there("img", /^Calls per minute, last .*: at most \d/);
  await there("img", /^95th percentile of latency, last .*: at most \d/);
  const ranges = await page.getByRole("img").evaluateAll((all) => all.map((picture) => /, (last [^:]*):/.exec(picture.getAttribute("aria-label"))?.[1]));
  assert.equal(new Set(ranges.filter(Boolean)).size, 1, `one time range: ${ranges}`);
  await page.locator(".axis-y", { hasText: "0 ms" }).waitFor();
  assert.equal(await page.locator("figure .axis-x").first().locator("time").count(), 3);
  for (const fact of ["transport", "protocol", "circuit", "restarts", "calls", "latency"]) {
    await page.getByRole("region", { name: "Facts" }).getByText(fact, { exact: true }).waitFor();
  }
  await page.getByRole("region", { name: "Events" }).getByRole("listitem").first().waitFor();
  await page.getByRole("region", { name: "Last lines of stderr" }).getByText(/demo server: filling stderr/).waitFor();
  const tool = page.getByRole("region", { name: /^Tools/ }).getByRole("listitem").filter({ hasText: /^add/ });
  await tool.getByText("approved", { exact: true }).waitFor();

  await page.getByRole("link", { name: "Clients" }).click();
  await page.getByRole("region", { name: "Sessions" }).getByRole("row", { name: /a-client/ }).waitFor();

  await page.getByRole("link", { name: "Config" }).click();
  const settings = page.getByRole("region", { name: "servers.steady" });
  await there("row", /^command .* line \d+$/, settings);
  await there("row", /^env\.API_KEY .* line \d+$/, settings);
  assert.equal(await page.getByRole("link", { name: "Replicas" }).count(), 0, "a gateway that runs alone has no such page");
  await page.getByLabel("show defaults").check();
  await there("row", /^timeouts\.call .* default$/, settings);
  assert.ok(!(await page.content()).includes("nobody-may-see"), "a secret is not shown");
  await page.done();
}

async function keyboard() {
  const page = await open("#/");
  await page.keyboard.press("Tab");
  await page.getByRole("link", { name: "Skip to content" }).and(page.locator(":focus")).waitFor();
  await page.keyboard.press("Enter");
  assert.equal(await page.evaluate(() => document.activeElement.id), "page");
  // The first link, once it is shown: the item that needs attention.
  await page.getByRole("link", { name: "broken" }).first().waitFor();
  await page.keyboard.press("Tab");
  await page.getByRole("link", { name: "broken" }).first().and(page.locator(":focus")).waitFor();
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { level: 1, name: /broken/ }).waitFor();
  // Updates do not take the focus away.
  await page.getByRole("button", { name: "Reconnect broken" }).focus();
  await act("upstreams/steady/call", { tool: "crash" });
  await page.waitForResponse((response) => response.url().endsWith("/api/v1/status"), { timeout: PATIENCE });
  await page.getByRole("button", { name: "Reconnect broken" }).and(page.locator(":focus")).waitFor();
  await page.keyboard.press("Enter");
  await page.getByRole("dialog", { name: "Admin token" }).waitFor();
  assert.equal(await page.evaluate(() => document.activeElement.id), "token");
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "detached" });
  page.expects(/401/);
  await page.done();
}

async function pages() {
  await act("upstreams/steady/call", { tool: "add", arguments: { a: 1, b: 2 } });
  await act("upstreams/steady/call", { tool: "crash" });
  for (const scheme of ["light", "dark"]) {
    for (const [name, hash] of Object.entries(PAGES)) {
      const page = await open(hash, scheme);
      await page.getByRole("heading", { level: 1 }).waitFor();
      await picture(page, `${name}-${scheme}`);
      const troubles = await axeSays(page);
      assert.deepEqual(troubles, [], `${name}, ${scheme}`);
      if (name === "nobody") page.expects(/404/);
      await page.done();
    }
  }
}

async function mistakes() {
  const page = await open("#/");
  await page.evaluate(() => {
    console.error("this is a mistake");
    const script = document.createElement("script");
    script.textContent = "window.ran = true";
    const button = document.createElement("button");
    document.body.append(script, button);
  });
  assert.equal(await page.evaluate(() => window.ran), undefined, "the policy lets no inline script run");
  assert.ok((await axeSays(page)).some(({ id }) => id === "button-name"), "a button without a name is found");
  await assert.rejects(page.done(), /this is a mistake[^]*Content Security Policy/);
}

/** Two replicas with different configs: both are named, with their figures, and the difference is a warning. */
async function replicas() {
  await begin("a-client");
  for (const scheme of ["light", "dark"]) {
    const page = await open("#/", scheme);
    await page.getByRole("link", { name: "Replicas" }).click();
    const rows = page.getByRole("region", { name: "Replicas of the service" }).getByRole("row");
    const cells = async (name) => rows.filter({ has: page.getByRole("rowheader", { name }) }).getByRole("cell").allTextContents();
    await rows.filter({ hasText: "a" }).filter({ hasText: "this one" }).getByRole("cell", { name: "1", exact: true }).waitFor();
    await page.waitForFunction(() => [...document.querySelectorAll("tbody tr")].filter((row) => /\d ms/.test(row.textContent)).length === 2);
    const [ours, theirs] = [await cells(/^a/), await cells("b")];
    for (const [state, , forwards, latency, , , address] of [ours, theirs]) {
      assert.equal(state, "● live");
      assert.match(forwards, /^\d+\.\d$/);
      assert.match(latency, /^\d+(\.\d)? ms$/);
      assert.match(address, /^http:\/\/127\.0\.0\.1:\d+/);
    }
    assert.deepEqual([ours[1], theirs[1]], ["1", "0"], "sessions");
    assert.match(theirs[4], /^[0-9a-f]+ differs$/);
    const difference = page.getByRole("region", { name: "Needs attention" }).getByRole("listitem");
    assert.match(await difference.textContent(), /configs differ: [0-9a-f]+ at a; [0-9a-f]+ at b/);
    await page.getByText(/^Served by replica a\. 2 replicas, 1 session, /).waitFor();
    await picture(page, `replicas-${scheme}`);
    assert.deepEqual(await axeSays(page), [], scheme);
    await page.setViewportSize({ width: 400, height: 800 });
    assert.ok(await page.evaluate(() => document.documentElement.scrollWidth) <= 400, "no wider than the window");
    await picture(page, `replicas-${scheme}-narrow`);
    await page.done();
  }
}

/** The other replica was killed. */
async function lostReplica() {
  const page = await open("#/replicas");
  await page.getByRole("row", { name: /^b lost/ }).waitFor();
  const warnings = page.getByRole("region", { name: "Needs attention" }).getByRole("listitem");
  await warnings.getByText(/1 replica lost: b, \d+ m?s ago/).waitFor();
  assert.equal(await warnings.count(), 1, "the config of a lost replica is no warning");
  await page.getByText(/ 1 replica, 1 session, /).waitFor();
  await picture(page, "replicas-lost");
  assert.deepEqual(await axeSays(page), []);
  await page.done();
}

/** The store was killed too. */
async function lostStore() {
  const page = await open("#/");
  await page.getByRole("heading", { level: 1, name: "The store is unreachable" }).waitFor();
  const trouble = page.getByRole("region", { name: "Needs attention" }).getByText(/store unreachable/);
  await trouble.waitFor();
  await picture(page, "overview-lost-store");
  await page.getByRole("link", { name: "Replicas" }).click();
  await page.getByRole("heading", { level: 1, name: "Replicas" }).waitFor();
  await trouble.waitFor();
  await page.getByText(/^Last contact \d+ .* ago\. Sessions and calls go on/).waitFor();
  await page.getByRole("row", { name: /^a this one live/ }).getByRole("cell", { name: "–" }).waitFor();
  await picture(page, "replicas-lost-store");
  assert.deepEqual(await axeSays(page), []);
  await page.done();
}

/** The text of a hostile replica comes through the store; a name that no gateway would pass on is put into the answer. */
async function hostileReplica() {
  const text = '<img src=x onerror="window.ran = true">';
  const page = await open("", "light", async (page) => {
    await page.route("**/api/v1/replicas", async (route) => {
      const rows = await (await route.fetch()).json();
      const planted = rows.map((row) => (row.name === "hostile" ? { ...row, name: text } : row));
      return route.fulfill({ json: [...planted, { ...rows[0], self: false, name: `lost ${text}`, state: "lost", lost_ms: 1000 }] });
    });
    await page.goto(`${url}/#/replicas`);
  });
  const row = page.getByRole("row").filter({ has: page.getByRole("rowheader", { name: text, exact: true }) });
  await row.getByText("1235", { exact: true }).waitFor();
  assert.equal(await row.getByText(text).count(), 3, "name, config and version are shown as they are");
  const warnings = page.getByRole("region", { name: "Needs attention" });
  await warnings.getByText(`1 replica lost: lost ${text}, 1 s ago`).waitFor();
  assert.equal(await warnings.getByText(`${text} at ${text}`).count(), 2, "configs and versions differ");
  assert.equal(await page.locator("main img").count(), 0, "no element is made of it");
  assert.equal(await page.evaluate(() => window.ran), undefined);
  await picture(page, "replicas-hostile");
  await page.done();
}

/** Accessibility violations of a page. */
async function axeSays(page) {
  await page.evaluate(axe.source);
  const { violations } = await page.evaluate(() => window.axe.run());
  return violations
    .filter(({ impact }) => impact === "serious" || impact === "critical")
    .map(({ id, help, nodes }) => ({ id, help, where: nodes.map(({ html }) => html.slice(0, 200)) }));
}

/** Opens a page that records its errors. */
async function open(hash, scheme = "light", enter = (page) => page.goto(`${url}/${hash}`)) {
  const page = await browser.newPage({ viewport: { width: 1280, height: 900 }, colorScheme: scheme });
  page.setDefaultTimeout(PATIENCE);
  const said = [];
  const expected = [];
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) said.push(message.text());
  });
  page.on("pageerror", (error) => said.push(error.stack));
  page.on("requestfailed", (request) => {
    // Streams and pending requests end with their page.
    const { errorText } = request.failure();
    if (errorText !== "net::ERR_ABORTED") said.push(`${request.url()}: ${errorText}`);
  });
  page.expects = (pattern) => expected.push(pattern);
  page.done = async () => {
    await page.close();
    const unexpected = said.filter((text) => !expected.some((pattern) => pattern.test(text)));
    assert.deepEqual(unexpected, [], "the console is silent");
  };
  await enter(page);
  await page.locator("#connection").getByText("● live").waitFor();
  return page;
}

async function picture(page, name) {
  await page.screenshot({ path: join(pictures, `${name}.png`), fullPage: true });
}

/** Starts a session as a client of this name. */
async function begin(name) {
  const params = { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name, version: "1" } };
  const answer = await fetch(`${url}/mcp`, {
    method: "POST",
    headers: { "content-type": "application/json", accept: "application/json, text/event-stream" },
    body: JSON.stringify({ jsonrpc: "2.0", id: 1, method: "initialize", params }),
  });
  assert.equal(answer.status, 200);
}

/** Sends a POST to the admin API with the token. */
async function act(path, body) {
  const answer = await fetch(`${url}/api/v1/${path}`, {
    method: "POST",
    headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
    body: JSON.stringify(body),
  });
  return answer.text();
}
