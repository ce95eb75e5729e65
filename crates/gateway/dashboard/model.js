// What is known at this moment, and who wants to hear when that changes.

import { follow, read } from "./api.js";

const MOST_EVENTS = 500;
const LOOK_EVERY = 5000;
const AFTER_AN_EVENT = 150;

/** `locked`: the gateway shows itself only to those who have its token. */
export const model = { fleet: null, history: null, events: [], connected: false, trouble: null, locked: false };

const listeners = new Set();
let due = null;
let leave = () => {};

export function onChange(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function changed() {
  for (const listener of listeners) listener();
}

/** Looks at the fleet, and again shortly after whatever happens. */
export async function look() {
  try {
    [model.fleet, model.history] = await Promise.all([read("status"), read("history")]);
    model.trouble = null;
    model.locked = false;
  } catch (error) {
    model.trouble = error.message;
    model.locked = error.status === 401;
  }
  changed();
}

export function begin() {
  attend();
  setInterval(() => document.hidden || look(), LOOK_EVERY);
}

/** Looks and follows from now on with the token that there is. */
export function attend() {
  leave();
  leave = follow({
    connected: () => {
      model.connected = true;
      look();
    },
    lost: () => {
      model.connected = false;
      changed();
    },
    told: (event) => {
      model.events.unshift(event);
      model.events.length = Math.min(model.events.length, MOST_EVENTS);
      changed();
      due ??= setTimeout(() => {
        due = null;
        look();
      }, AFTER_AN_EVENT);
    },
  });
  look();
}

export function upstream(name) {
  return model.fleet?.upstreams.find((upstream) => upstream.name === name);
}

export function past(name) {
  return model.history?.servers.find((server) => server.name === name) ?? { states: [], minutes: [] };
}
