// The live stream of changes, with selectors; pushed by the server.

import { el, pill } from "./dom.js";
import { json } from "./stream.js";
import { age, count } from "./units.js";

const MOST = 200;
const PAST = [["0", "now on"], ["60", "1 minute ago"], ["300", "5 minutes ago"], ["1800", "30 minutes ago"], ["7200", "2 hours ago"]];
const KINDS = { A: ["added", "good"], M: ["modified", ""], D: ["deleted", "bad"] };

export class Changes {
  constructor({ model, go, follow }) {
    this.model = model;
    this.go = go;
    this.title = "Changes";
    this.paused = false;
    this.seen = 0;
    this.skipped = 0;
    this.resource = el("select", { id: "c-resource", onchange: () => this.filter() }, el("option", { value: "" }, "all resources"));
    this.text = el("input", { id: "c-text", type: "search", placeholder: "part of a key", onchange: () => this.filter() });
    this.labels = el("input", { id: "c-labels", type: "search", placeholder: "app=web,tier in (a,b)", spellcheck: "false", onchange: () => this.filter() });
    this.since = el("select", { id: "c-since", onchange: () => this.filter() }, ...PAST.map(([value, name]) => el("option", { value }, name)));
    this.note = el("p", { class: "soft", role: "status" });
    this.button = el("button", { type: "button", "aria-pressed": "false", onclick: () => this.pause() }, "Pause");
    this.count = el("span", { class: "count" });
    this.body = el("tbody");
    this.follow = follow;
    const field = (label, input) => el("label", { for: input.id }, label, input);
    this.node = el("div", {}, el("h1", {}, "Changes"),
      el("div", { class: "bar" }, field("Resource", this.resource), field("Key", this.text), field("Labels", this.labels), field("From", this.since), this.button, this.count), this.note,
      el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Changes, the newest first" },
        el("table", { class: "changes" }, el("caption", { class: "hidden" }, "Changes, the newest first"),
          el("thead", {}, el("tr", {}, ...["Time", "Change", "Resource", "Key", "Version"].map((name) => el("th", { scope: "col" }, name)))), this.body)));
  }

  draw() {
    const names = this.model.picture.resources.map((one) => one.name);
    if (this.resource.options.length !== names.length + 1) {
      const chosen = this.resource.value;
      this.resource.replaceChildren(el("option", { value: "" }, "all resources"), ...names.map((name) => el("option", { value: name }, name)));
      this.resource.value = chosen;
    }
    this.say();
  }

  say() {
    const skipped = this.skipped ? `, ${count(this.skipped)} more were too many to show` : "";
    this.count.textContent = this.seen || this.skipped ? `${count(this.seen)} shown${skipped}` : "waiting for a change";
  }

  filter() {
    const query = { resource: this.resource.value, q: this.text.value, labels: this.labels.value };
    this.body.replaceChildren();
    this.seen = this.skipped = 0;
    this.follow(Object.fromEntries(Object.entries(query).filter(([, value]) => value)));
    this.past(query);
  }

  /** Shows the objects that have changed since then, below those that change from now on. */
  async past({ resource, q, labels }) {
    const seconds = this.since.value;
    const turn = (this.turn = (this.turn ?? 0) + 1);
    this.note.textContent = "";
    if (seconds === "0") return;
    if (labels) {
      this.note.textContent = "Labels select changes from now on; clear them to see earlier ones.";
      return;
    }
    try {
      const found = await json(`past?${new URLSearchParams({ resource, seconds })}`);
      if (turn === this.turn) this.earlier(found, q.toLowerCase());
    } catch (error) {
      this.note.textContent = error.message;
    }
  }

  earlier({ changes, complete, known, seconds }, text) {
    const chosen = changes.filter((one) => one.key.toLowerCase().includes(text));
    const reach = known === null ? "The times of changes are not known: `shmcache run` notes them." : known < seconds ? `Times are known for the last ${age(known)}.` : "";
    const cut = complete ? "" : " Earlier changes were too many to show.";
    this.note.textContent = `${count(chosen.length)} objects have changed since then. ${reach}${cut}`.trim();
    this.body.append(...chosen.map((one) => {
      const time = one.age === null ? "earlier" : `${age(one.age)} ago`;
      return this.row(time, [one.number, one.kind, one.resource, one.key, one.times > 1 ? `${one.version ?? ""} (${count(one.times)} changes)` : one.version]);
    }));
  }

  leave() {
    this.follow({});
  }

  pause() {
    this.paused = !this.paused;
    this.button.textContent = this.paused ? "Continue" : "Pause";
    this.button.setAttribute("aria-pressed", String(this.paused));
  }

  /** Adds a batch of changes; while paused they are counted only. */
  show({ rows, skipped }) {
    if (this.paused) {
      this.skipped += rows.length + skipped;
      return this.say();
    }
    this.seen += rows.length;
    this.skipped += skipped;
    this.say();
    const now = new Date();
    const time = `${now.toTimeString().slice(0, 8)}.${String(now.getMilliseconds()).padStart(3, "0")}`;
    const made = rows.reverse().map((row) => this.row(time, row));
    this.body.prepend(...made);
    while (this.body.childElementCount > MOST) this.body.lastElementChild.remove();
  }

  row(time, [, kind, resource, key, version]) {
    const [label, mood] = KINDS[kind] ?? [kind, ""];
    const change = el("span");
    pill(change, label, mood);
    const open = () => this.go("objects", resource, key);
    const cells = [el("td", { class: "soft" }, time.replace(/\.\d+$/, ""), el("span", { class: "fraction" }, time.match(/\.\d+$/)?.[0] ?? "")), el("td", {}, change), el("td", {}, resource), el("td", { class: "key" }, ...key.split(/(?<=\/)/).map((part) => el("span", {}, part))), el("td", { class: "soft" }, version ?? "")];
    return el("tr", { tabindex: "0", onclick: open, onkeydown: (event) => event.key === "Enter" && open() }, ...cells);
  }
}
