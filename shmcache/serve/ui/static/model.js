// The state of the page: the last picture, rates by comparison with the one before, lines over time.

import { Series } from "./charts.js";

export class Model {
  constructor() {
    this.picture = null;
    this.at = 0;
    this.events = new Series();
    this.lag = new Series();
    this.memory = new Series();
    this.lines = new Map();
    this.before = new Map();
  }

  line(name) {
    if (!this.lines.has(name)) this.lines.set(name, new Series(120));
    return this.lines.get(name);
  }

  /** The growth of a counter per second since the last picture; null at first. */
  rate(name, value, seconds) {
    const before = this.before.get(name);
    this.before.set(name, value);
    return before === undefined || seconds <= 0 ? null : Math.max(0, value - before) / seconds;
  }

  take(picture) {
    const seconds = this.picture ? picture.time - this.picture.time : 0;
    this.picture = picture;
    this.at = performance.now();
    for (const one of picture.resources) {
      one.rate = this.rate(`resource ${one.name}`, one.counters.events, seconds);
      if (one.rate !== null) this.line(`resource ${one.name}`).push(one.rate);
    }
    for (const one of picture.workers) {
      one.rate = this.rate(`worker ${one.pid}`, one.taken, seconds);
      this.line(`worker ${one.pid}`).push(one.lag ?? 0);
    }
    for (const [name, one] of Object.entries(picture.queues)) {
      one.rate = this.rate(`queue ${name}`, one.dones, seconds);
      this.line(`queue ${name}`).push(one.depth);
    }
    const changes = this.rate("changes", picture.window.head, seconds);
    if (changes !== null) this.events.push(changes);
    this.lag.push(Math.max(0, ...picture.workers.map((one) => one.lag ?? 0)));
    this.memory.push(picture.memory.bytes);
    this.forget(picture);
  }

  /** Lines of workers and resources that have gone need no memory. */
  forget(picture) {
    const kept = new Set([
      ...picture.resources.map((one) => `resource ${one.name}`),
      ...picture.workers.map((one) => `worker ${one.pid}`),
      ...Object.keys(picture.queues).map((name) => `queue ${name}`),
      "changes",
    ]);
    for (const map of [this.lines, this.before]) {
      for (const name of map.keys()) if (!kept.has(name)) map.delete(name);
    }
  }
}

const MOODS = { synced: "good", listing: "warn", retrying: "warn", stale: "bad", exceeded: "bad", gone: "bad", absent: "bad" };

export const mood = (state) => MOODS[state] ?? "";
