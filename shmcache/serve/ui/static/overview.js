// Resources with their freshness, and the cache as a whole.

import { chart, spark } from "./charts.js";
import { Table, el, pill, text } from "./dom.js";
import { mood } from "./model.js";
import { age, bytes, count, rate } from "./units.js";

function card(title) {
  const value = el("strong", {}, "–");
  const note = el("small", {}, "\u00a0");
  const node = el("div", { class: "card" }, el("h3", {}, title), value, note);
  node.say = (big, small) => {
    text(value, big);
    text(note, small || "\u00a0");
  };
  return node;
}

export class Overview {
  constructor({ model, go }) {
    this.model = model;
    this.cards = ["Freshness", "Writer", "Objects", "Changes", "Shared memory", "Saved by sharing"].map(card);
    this.charts = [chart("Changes a second", rate), chart("Largest lag of a worker", count), chart("Shared memory", bytes)];
    const line = { label: "last 2 min", cell: spark, draw: (svg, item) => svg.draw(model.line(`resource ${item.name}`)) };
    this.table = new Table("Resources", [
      { name: "name", label: "Resource", get: (one) => one.name, class: "key" },
      { name: "state", label: "State", get: (one) => one.state, cell: () => el("span"), draw: (node, one) => pill(node, one.state, mood(one.state)) },
      { name: "age", label: "Last contact", n: true, get: (one) => one.age, show: (one) => age(one.age) },
      { name: "objects", label: "Objects", n: true, get: (one) => one.objects, show: (one) => count(one.objects) },
      { name: "bytes", label: "Memory", n: true, get: (one) => one.bytes, show: (one) => bytes(one.bytes) },
      { name: "rate", label: "Events/s", n: true, get: (one) => one.rate, show: (one) => rate(one.rate) },
      line,
      { name: "errors", label: "Errors", n: true, get: (one) => one.counters.errors, show: (one) => count(one.counters.errors) },
      { name: "relists", label: "Relists", n: true, get: (one) => one.counters.relists, show: (one) => count(one.counters.relists) },
      { name: "version", label: "Version", n: true, get: (one) => Number(one.version), show: (one) => one.version ?? "–" },
      { name: "reason", label: "Reason", get: (one) => one.reason, class: "wide" },
    ], { key: (one) => one.name, open: (one) => go("objects", one.name) });
    this.title = "Overview";
    this.node = el("div", {}, el("h1", {}, "Overview"), el("div", { class: "cards" }, ...this.cards), el("div", { class: "charts" }, ...this.charts), el("h2", {}, "Resources"), this.table.node);
  }

  draw() {
    const at = this.model.picture;
    const { resources, workers, memory, writer } = at;
    const fresh = resources.filter((one) => one.state === "synced").length;
    const oldest = Math.max(0, ...resources.map((one) => one.age ?? 0));
    const copies = Math.max(workers.length - 1, 0);
    const [freshness, writes, objects, changes, shared, saved] = this.cards;
    freshness.say(fresh === resources.length ? "all synced" : `${fresh} of ${resources.length}`, `oldest contact ${age(oldest)} ago`);
    writes.say(writer.beats ? "alive" : writer.closed ? "ended" : writer.alive ? "hangs" : "dead", `pid ${writer.pid}, generation ${count(at.generation)}`);
    objects.say(count(resources.reduce((sum, one) => sum + one.objects, 0)), resources.length === 1 ? "1 resource" : `${resources.length} resources`);
    changes.say(`${rate(this.model.events.last)}/s`, `${count(at.window.changes)} kept in the window`);
    shared.say(bytes(memory.bytes), `of at most ${bytes(memory.maximum)}`);
    saved.say(bytes(memory.used * copies), copies ? `${workers.length} workers read one copy` : "with two or more workers");
    [this.model.events, this.model.lag, this.model.memory].forEach((series, number) => this.charts[number].draw(series));
    this.table.draw(resources);
  }
}
