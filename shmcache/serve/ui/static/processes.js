// Workers with their lag, queues, and controllers with their slowest keys.

import { spark } from "./charts.js";
import { Table, el, pill } from "./dom.js";
import { age, bytes, count, rate } from "./units.js";

const column = (name, label, show = count) => ({ name, label, n: true, get: (one) => one[name], show: (one) => show(one[name]) });

export class Workers {
  constructor({ model }) {
    this.model = model;
    this.title = "Workers";
    this.table = new Table("Workers", [
      { name: "pid", label: "Process", n: true, get: (one) => one.pid },
      { name: "lag", label: "Lag", n: true, get: (one) => one.lag, show: (one) => count(one.lag) },
      { label: "last 2 min", cell: spark, draw: (svg, one) => svg.draw(model.line(`worker ${one.pid}`)) },
      { name: "asleep", label: "State", get: (one) => String(one.asleep), cell: () => el("span"), draw: (node, one) => pill(node, one.asleep ? "asleep" : "awake", one.asleep ? "" : "good") },
      { name: "rate", label: "Changes/s", n: true, get: (one) => one.rate, show: (one) => rate(one.rate) },
      column("lapped", "Lapped"),
      column("pins", "Pins"),
      column("private", "Private memory", bytes),
      column("attached", "Attached", age),
      { name: "command", label: "Command", get: (one) => one.command, class: "cut" },
    ], { key: (one) => one.pid, sort: { name: "lag", down: true } });
    this.note = el("p", { class: "soft" });
    this.node = el("div", {}, el("h1", {}, "Workers"), this.note, this.table.node);
  }

  draw() {
    const at = this.model.picture;
    this.note.textContent = at.partial
      ? "You may not list every resource of this cache, so its workers are not shown to you."
      : `${at.workers.length} of ${at.seats} seats are taken. Lag counts the changes that a worker has not dealt with yet; private memory includes the interpreter.`;
    this.table.draw(at.workers);
  }
}

export class Queues {
  constructor({ model, go }) {
    this.model = model;
    this.title = "Queues";
    this.queues = new Table("Work queues", [
      { name: "name", label: "Queue", get: (one) => one.name, class: "key" },
      column("depth", "Depth"),
      { label: "last 2 min", cell: spark, draw: (svg, one) => svg.draw(model.line(`queue ${one.name}`)) },
      column("delayed", "Delayed"),
      column("in_progress", "In progress"),
      column("rate", "Done/s", rate),
      column("adds", "Adds"),
      column("retries", "Retries"),
      column("longest_seconds", "Longest", age),
    ], { key: (one) => one.name });
    this.controllers = new Table("Controllers", [
      { name: "name", label: "Controller", get: (one) => one.name, class: "key" },
      { name: "active", label: "Working", n: true, get: (one) => one.active, show: (one) => `${one.active} of ${one.concurrent}` },
      column("reconciles", "Reconciles"),
      { name: "errors", label: "Errors", n: true, get: (one) => one.results.error, show: (one) => count(one.results.error) },
      { name: "requeues", label: "Requeues", n: true, get: (one) => one.results.requeue + one.results.requeue_after, show: (one) => count(one.results.requeue + one.results.requeue_after) },
      column("timeouts", "Timeouts"),
      column("panics", "Panics"),
      { name: "mean", label: "Mean time", n: true, get: (one) => one.mean, show: (one) => age(one.mean) },
    ], { key: (one) => one.name });
    this.slowest = new Table("Slowest keys in progress", [
      { name: "controller", label: "Controller", get: (one) => one.controller },
      { name: "key", label: "Key", get: (one) => one.key, class: "key" },
      { name: "seconds", label: "For", n: true, get: (one) => one.seconds, show: (one) => age(one.seconds) },
    ], { key: (one) => `${one.controller} ${one.key}`, sort: { name: "seconds", down: true }, open: (one) => go("objects", "", one.key) });
    this.empty = el("p", { class: "empty" }, "No process keeps a queue at this cache.");
    this.parts = [
      [el("h2", {}, "Work queues"), this.queues],
      [el("h2", {}, "Controllers"), this.controllers],
      [el("h2", {}, "Slowest keys in progress"), this.slowest],
    ];
    this.node = el("div", {}, el("h1", {}, "Queues and controllers"), this.empty, ...this.parts.flatMap(([head, table]) => [head, table.node]));
  }

  draw() {
    const at = this.model.picture;
    const queues = Object.entries(at.queues).map(([name, one]) => Object.assign(one, { name }));
    const controllers = Object.entries(at.controllers).map(([name, one]) => Object.assign(one, { name, mean: one.reconciles ? one.seconds / one.reconciles : null }));
    const slowest = controllers.flatMap((one) => one.slowest.map((key) => ({ ...key, controller: one.name })));
    this.empty.hidden = queues.length + controllers.length > 0;
    [queues, controllers, slowest].forEach((items, number) => {
      const [head, table] = this.parts[number];
      head.hidden = table.node.hidden = items.length === 0;
      table.draw(items);
    });
  }
}
