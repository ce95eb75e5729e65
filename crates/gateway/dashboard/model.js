// What is known at this moment, and who wants to hear when that changes.

import { Refused, dropRefusedToken, follow, read } from "./api.js";

const MOST_EVENTS = 500;
const LOOK_EVERY = 5000;
const AFTER_AN_EVENT = 150;

/**
 * `locked`: the gateway shows itself only with its token; `refused`: why it did not take the last one. `lost`: the gateway
 * does not answer; `contact`: when it last did.
 */
export const model = {
  fleet: null, history: null, events: [], connected: false, trouble: null, locked: false, refused: null, lost: false, contact: Date.now(),
};

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
    Object.assign(model, { trouble: null, locked: false, refused: null, lost: false, contact: Date.now() });
  } catch (error) {
    model.lost = !(error instanceof Refused && error.isFromGateway);
    if (!model.lost) model.contact = Date.now();
    model.trouble = model.lost ? null : error.message;
    model.locked = error.status === 401;
    if (model.locked) model.refused = dropRefusedToken(error) ?? model.refused;
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
      look();
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

/** The moment that all that is shown is from. */
export function asOf() {
  return model.lost ? model.contact : Date.now();
}

export function upstream(name) {
  return model.fleet?.upstreams.find((upstream) => upstream.name === name);
}

export function past(name) {
  return model.history?.servers.find((server) => server.name === name) ?? { states: [], minutes: [] };
}
