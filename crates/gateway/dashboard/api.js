// The admin API, and nothing else. On the gateway's own machine reading needs no permission; acting, reading from
// elsewhere and, where clients have to authenticate, reading of records needs the admin token or the key of a session. A
// person pastes the token, or opens a sign-in link, whose code is exchanged for such a key. Either lives as long as the tab.

const TOKEN = "gripfast.token";
const SIGNED_IN_BY_LINK = "gripfast.signed_in_by_link";
const COME_BACK_AFTER = 3000;
/** A gateway that does not answer for this long is gone. */
const ANSWER_WITHIN = 10_000;

export class Refused extends Error {
  constructor(status, error) {
    super(error?.text ?? `the gateway answered with HTTP ${status}`);
    this.status = status;
    this.hint = error?.hint;
    /** Whether the gateway said so itself, and not a proxy in front of it. */
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

/** Why the gateway did not take what this tab shows; `null` if it shows nothing. Forgets it. */
export function dropRefusedToken(error) {
  if (token() === null) return null;
  const isByLink = sessionStorage.getItem(SIGNED_IN_BY_LINK) !== null;
  keepToken(null);
  return isByLink ? "This sign-in has ended." : `The gateway refused the token: ${error.message}.`;
}

/** Exchanges the code of a sign-in link for a session. */
export async function signIn(code) {
  const headers = { authorization: `Bearer ${code}` };
  const { key } = await answer(await fetch("/api/v1/sign_in", { method: "POST", headers }));
  keepToken(key, true);
}

export async function read(path) {
  return answer(await fetch(`/api/v1/${path}`, { headers: bearer(), signal: AbortSignal.timeout(ANSWER_WITHIN) }));
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

/** Follows what happens, and after a break comes back for what it missed. */
export function follow(listener) {
  return token() ? followByHand(listener) : followByBrowser(listener);
}

function followByBrowser({ told, connected, lost }) {
  const events = new EventSource("/api/v1/events");
  events.onopen = connected;
  events.onerror = lost;
  events.onmessage = (message) => told(JSON.parse(message.data));
  return () => events.close();
}

/** The browser's own way has no place for a token. */
function followByHand({ told, connected, lost }) {
  const left = new AbortController();
  let last = null;
  const attend = async () => {
    const headers = { ...bearer(), ...(last === null ? {} : { "last-event-id": last }) };
    const response = await fetch("/api/v1/events", { headers, signal: left.signal });
    if (!response.ok) return;
    connected();
    for await (const { id, data } of messages(response.body)) {
      last = id ?? last;
      if (data !== null) told(JSON.parse(data));
    }
  };
  const goOn = async () => {
    await attend().catch(() => {});
    if (left.signal.aborted) return;
    lost();
    setTimeout(goOn, COME_BACK_AFTER);
  };
  goOn();
  return () => left.abort();
}

/** The messages of a stream of events, each of which the gateway writes on one line. */
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
