// Labels, symbols and the formatting of times and counts. No symbol needs an emoji font.

export const STATES = {
  ready: ["●", "ready"],
  idle: ["○", "idle"],
  starting: ["◐", "starting"],
  degraded: ["●", "degraded"],
  reconnecting: ["↻", "reconnecting"],
  parked: ["✗", "parked"],
  needs_login: ["!", "needs login"],
  needs_approval: ["‖", "needs approval"],
  config_error: ["✗", "config error"],
  disabled: ["⊘", "disabled"],
  stopped: ["■", "stopped"],
};

/** States that need attention, the most severe first. */
export const TROUBLED = ["config_error", "needs_login", "parked", "needs_approval", "degraded", "reconnecting"];

export function stateWord(state) {
  return STATES[state]?.[1] ?? state;
}

export function stateSign(state) {
  return STATES[state]?.[0] ?? "?";
}

/** `250 ms`, `12 s`, `5 min`, `3 h`, `2 d`. */
export function span(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} d`;
}

export function count(number, what) {
  return `${number} ${what}${number === 1 ? "" : "s"}`;
}

export function clock(at) {
  return new Date(at).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" });
}

/** Hours and minutes. */
export function hour(at) {
  return new Date(at).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
}

/** Date and time. */
export function moment(at) {
  const time = new Date(at);
  const two = (number) => String(number).padStart(2, "0");
  return `${time.getFullYear()}-${two(time.getMonth() + 1)}-${two(time.getDate())} ${two(time.getHours())}:${two(time.getMinutes())}:${two(time.getSeconds())}`;
}

/** The time today, date and time otherwise. */
export function recently(at) {
  return new Date(at).toDateString() === new Date().toDateString() ? clock(at) : moment(at);
}

export function percent(part, whole) {
  return whole === 0 ? "–" : `${((100 * part) / whole).toFixed(1)} %`;
}

export function capital(words) {
  return words.charAt(0).toUpperCase() + words.slice(1);
}
