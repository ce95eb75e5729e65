// Client of the admin API. Reading needs no credential on the gateway's machine. Actions, reads from another machine and,
// if clients must authenticate, reads of records need the admin token or a session key. The operator pastes the token, or
// opens a sign-in link, whose code is exchanged for a session key. Both are kept until the tab is closed.

const TOKEN = "gripfast.token";
const SIGNED_IN_BY_LINK = "gripfast.signed_in_by_link";
const RECONNECT_DELAY = 3000;
/** A gateway that does not answer within this time counts as unreachable. */
const READ_TIMEOUT = 10_000;

export class Refused extends Error {
  constructor(status, error) {
    super(error?.text ?? `the gateway answered with HTTP ${status}`);
    this.status = status;
    this.hint = error?.hint;
    /** True if the gateway itself sent the error, not a proxy in front of it. */
    this.isFromGateway = error !== undefined;
  }
}

export function token() {
  return sessionStorage.getItem(TOKEN);
}

export function keepToken(text, isByLink = false) {
  if (text) sessionStorage.setItem(TOKEN, text.trim());
  else sessionStorage.removeItem(TOKEN);
  if (text && isByLink) sessionStorage.setItem(SIGNED_IN_BY_LINK, "yes");
  else sessionStorage.removeItem(SIGNED_IN_BY_LINK);
}

/** Forgets the refused credential. Returns the reason to show, or `null` if this tab has no credential. */
export function dropRefusedToken(error) {
  if (token() === null) return null;
  const isByLink = sessionStorage.getItem(SIGNED_IN_BY_LINK) !== null;
  keepToken(null);
  return isByLink ? "This sign-in is no longer valid." : `The gateway refused the token: ${error.message}.`;
}

/** Exchanges the code of a sign-in link for a session. */
export async function signIn(code) {
  const headers = { authorization: `Bearer ${code}` };
  const { key } = await answer(await fetch("/api/v1/sign_in", { method: "POST", headers }));
  keepToken(key, true);
}

export async function read(path) {
  return answer(await fetch(`/api/v1/${path}`, { headers: bearer(), signal: AbortSignal.timeout(READ_TIMEOUT) }));
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

/** Subscribes to the event stream. After a reconnect, the stream resumes after the last event that was received. */
export function subscribe(listener) {
  return token() ? subscribeWithFetch(listener) : subscribeWithEventSource(listener);
}

function subscribeWithEventSource({ received, connected, lost }) {
  const events = new EventSource("/api/v1/events");
  events.onopen = connected;
  events.onerror = lost;
  events.onmessage = (message) => received(JSON.parse(message.data));
  return () => events.close();
}

/** `EventSource` cannot send a token. */
function subscribeWithFetch({ received, connected, lost }) {
  const closed = new AbortController();
  let last = null;
  const readStream = async () => {
    const headers = { ...bearer(), ...(last === null ? {} : { "last-event-id": last }) };
    const response = await fetch("/api/v1/events", { headers, signal: closed.signal });
    if (!response.ok) return;
    connected();
    for await (const { id, data } of messages(response.body)) {
      last = id ?? last;
      if (data !== null) received(JSON.parse(data));
    }
  };
  const run = async () => {
    await readStream().catch(() => {});
    if (closed.signal.aborted) return;
    lost();
    setTimeout(run, RECONNECT_DELAY);
  };
  run();
  return () => closed.abort();
}

/** The messages of an event stream. The gateway writes each field on one line. */
async function* messages(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const blocks = (text + value).split("\n\n");
    text = blocks.pop();
    for (const block of blocks) yield { id: field(block, "id"), data: field(block, "data") };
  }
}

function field(block, name) {
  const line = block.split("\n").find((line) => line.startsWith(`${name}:`));
  return line === undefined ? null : line.slice(name.length + 1).trimStart();
}

export function server(name) {
  return `upstreams/${encodeURIComponent(name)}`;
}
