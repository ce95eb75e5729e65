// Data of the dashboard as last read, and listeners for changes.

import { Refused, dropRefusedToken, read, subscribe } from "./api.js";

const MAX_EVENTS = 500;
const REFRESH_INTERVAL = 5000;
const REFRESH_AFTER_EVENT = 150;

/**
 * `locked`: the gateway requires the admin token; `refused`: why it refused the last one. `lost`: the gateway does not
 * answer; `contact`: the time of its last answer.
 */
export const model = {
  fleet: null, history: null, events: [], connected: false, problem: null, locked: false, refused: null, lost: false, contact: Date.now(),
};

const listeners = new Set();
let due = null;
let unsubscribe = () => {};

export function onChange(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function changed() {
  for (const listener of listeners) listener();
}

/** Reads the status and the history. */
export async function refresh() {
  try {
    [model.fleet, model.history] = await Promise.all([read("status"), read("history")]);
    Object.assign(model, { problem: null, locked: false, refused: null, lost: false, contact: Date.now() });
  } catch (error) {
    model.lost = !(error instanceof Refused && error.isFromGateway);
    if (!model.lost) model.contact = Date.now();
    model.problem = model.lost ? null : error.message;
    model.locked = error.status === 401;
    if (model.locked) model.refused = dropRefusedToken(error) ?? model.refused;
  }
  changed();
}

export function begin() {
  connect();
  setInterval(() => document.hidden || refresh(), REFRESH_INTERVAL);
}

/** Reads the status and subscribes to events with the current token. */
export function connect() {
  unsubscribe();
  unsubscribe = subscribe({
    connected: () => {
      model.connected = true;
      refresh();
    },
    lost: () => {
      model.connected = false;
      refresh();
    },
    received: (event) => {
      model.events.unshift(event);
      model.events.length = Math.min(model.events.length, MAX_EVENTS);
      changed();
      due ??= setTimeout(() => {
        due = null;
        refresh();
      }, REFRESH_AFTER_EVENT);
    },
  });
  refresh();
}

/**
 * Data of a page, read now and with each status. `value` is the last one that was read; `problem` is the error of the last
 * attempt, or null.
 */
export function readWithStatus(load) {
  const data = { value: null, problem: null, refresh, leave: () => {} };
  let seen = null;

  async function refresh() {
    try {
      data.value = await load();
      data.problem = null;
    } catch (error) {
      data.problem = error;
    }
    changed();
  }

  data.leave = onChange(() => {
    if (seen !== model.fleet) {
      seen = model.fleet;
      refresh();
    }
  });
  refresh();
  return data;
}

/** The time of the data that is shown. */
export function asOf() {
  return model.lost ? model.contact : Date.now();
}

export function upstream(name) {
  return model.fleet?.upstreams.find((upstream) => upstream.name === name);
}

export function past(name) {
  return model.history?.servers.find((server) => server.name === name) ?? { states: [], minutes: [] };
}
