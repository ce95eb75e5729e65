// The admin API, and nothing else. Reading needs no permission; acting needs the admin token, which the
// person pastes once and which lives as long as the tab.

const TOKEN = "gripfast.token";

export class Refused extends Error {
  constructor(status, error) {
    super(error?.text ?? `the gateway answered with HTTP ${status}`);
    this.status = status;
    this.hint = error?.hint;
  }
}

export function token() {
  return sessionStorage.getItem(TOKEN);
}

export function keepToken(text) {
  if (text) sessionStorage.setItem(TOKEN, text.trim());
  else sessionStorage.removeItem(TOKEN);
}

export async function read(path) {
  return answer(await fetch(`/api/v1/${path}`, { headers: bearer() }));
}

export async function act(path, body) {
  const headers = { ...bearer(), ...(body === undefined ? {} : { "content-type": "application/json" }) };
  const sent = { method: "POST", headers, body: body === undefined ? undefined : JSON.stringify(body) };
  return answer(await fetch(`/api/v1/${path}`, sent));
}

function bearer() {
  const known = token();
  return known ? { authorization: `Bearer ${known}` } : {};
}

async function answer(response) {
  const text = await response.text();
  let body = null;
  try {
    body = text ? JSON.parse(text) : null;
  } catch {
    // Not from the admin API: a proxy, or an older gateway.
  }
  if (!response.ok) throw new Refused(response.status, body?.error);
  return body;
}

/** Follows what happens. The browser comes back by itself after a break, and gets what it missed. */
export function follow({ told, connected, lost }) {
  const events = new EventSource("/api/v1/events");
  events.onopen = connected;
  events.onerror = lost;
  events.onmessage = (message) => told(JSON.parse(message.data));
  return () => events.close();
}

export function server(name) {
  return `upstreams/${encodeURIComponent(name)}`;
}
