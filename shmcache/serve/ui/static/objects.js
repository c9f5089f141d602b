// Objects: a resource as a table of the server's own columns, a search over keys, one object.

import { difference, summary } from "./diff.js";
import { Table, el, pill } from "./dom.js";
import { json } from "./stream.js";
import { age } from "./units.js";

const PAGE = 200;
const PAUSE = 300;
const TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io, application/json";

export class Objects {
  constructor({ model, go }, [resource = "", key = ""]) {
    this.model = model;
    this.go = go;
    this.title = key || resource || "Objects";
    this.body = el("div");
    this.node = el("div", {}, this.body);
    if (resource && key) this.open(new Single(go, resource, key));
    else this.open(new Browser(model, go, resource, key));
  }

  open(part) {
    this.part = part;
    this.body.replaceChildren(part.node);
  }

  draw() {
    this.part.draw?.();
  }
}

class Browser {
  constructor(model, go, resource, text) {
    this.model = model;
    this.go = go;
    this.first = resource;
    this.resource = el("select", { id: "o-resource", onchange: () => go("objects", this.resource.value) });
    this.text = el("input", { id: "o-text", type: "search", value: text, placeholder: "part of a key", onchange: () => this.load() });
    this.labels = el("input", { id: "o-labels", type: "search", placeholder: "app=web", spellcheck: "false", onchange: () => this.load() });
    this.count = el("span", { class: "count", role: "status" });
    this.content = el("div");
    const field = (label, input) => el("label", { for: input.id }, label, input);
    this.node = el("div", {}, el("h1", {}, "Objects"), el("div", { class: "bar" }, field("Resource", this.resource), field("Key", this.text), field("Labels", this.labels), this.count), this.content);
    if (model.picture) this.draw();
  }

  draw() {
    if (this.filled) return;
    this.filled = true;
    const names = this.model.picture.resources.map((one) => one.name);
    this.resource.append(el("option", { value: "" }, "all resources"), ...names.map((name) => el("option", { value: name }, name)));
    this.resource.value = this.first;
    this.load();
  }

  async load() {
    const row = this.model.picture.resources.find((one) => one.name === this.first);
    try {
      if (row?.path && !this.text.value) await this.list(row);
      else if (this.first || this.text.value || this.labels.value) await this.search();
      else this.content.replaceChildren(el("p", { class: "empty" }, "Choose a resource, or search the keys of all of them."));
    } catch (error) {
      this.content.replaceChildren(el("p", { class: "empty", role: "alert" }, error.message));
    }
  }

  async list(row) {
    const query = new URLSearchParams({ limit: PAGE });
    if (this.labels.value) query.set("labelSelector", this.labels.value);
    const found = await json(`${row.path}?${query}`, { accept: TABLE });
    const more = found.metadata.continue ? ", the first page of more" : "";
    this.count.textContent = `${found.rows.length} objects${more}`;
    const shown = found.columnDefinitions.map((column, at) => ({ ...column, at })).filter((column) => column.priority === 0);
    const columns = shown.map((column) => ({
      name: column.name,
      label: column.name,
      n: column.type === "integer" || column.type === "number",
      class: column.at === 0 ? "key" : "",
      get: (item) => item.cells[column.at],
    }));
    if (row.namespaced) columns.unshift({ name: "Namespace", label: "Namespace", get: (item) => item.object.metadata.namespace });
    const keyOf = (item) => (row.namespaced ? `${item.object.metadata.namespace}/` : "") + item.object.metadata.name;
    this.table(columns, found.rows, keyOf, (item) => this.go("objects", row.name, keyOf(item)));
  }

  async search() {
    const found = await json(`search?${new URLSearchParams({ resource: this.first, q: this.text.value, labels: this.labels.value })}`);
    this.count.textContent = `${found.matches.length}${found.complete ? "" : " or more"} keys`;
    const columns = [
      { name: "resource", label: "Resource", get: (item) => item.resource },
      { name: "key", label: "Key", get: (item) => item.key, class: "key" },
    ];
    this.table(columns, found.matches, (item) => `${item.resource} ${item.key}`, (item) => this.go("objects", item.resource, item.key));
  }

  table(columns, items, key, open) {
    const table = new Table("Objects", columns, { key, open });
    table.draw(items);
    this.content.replaceChildren(items.length ? table.node : el("p", { class: "empty" }, "No object matches."));
  }
}

class Single {
  constructor(go, resource, key) {
    this.resource = resource;
    this.key = key;
    this.tabs = [["Object", () => this.now()], ["History", () => this.history()], ["JSON", () => this.text()]];
    this.buttons = this.tabs.map(([name], at) => el("button", { type: "button", role: "tab", onclick: () => this.choose(at) }, name));
    this.state = el("span", { class: "pill" }, "loading");
    this.content = el("div", { role: "tabpanel" });
    this.node = el("div", {},
      el("p", {}, el("a", { href: `#/objects/${encodeURIComponent(resource)}` }, resource)),
      el("h1", {}, `${key} `, this.state),
      el("div", { class: "tabs", role: "tablist" }, ...this.buttons), this.content);
    this.at = 0;
    this.opened = new Map([["", true], [".metadata", true], [".spec", true], [".status", true]]);
    this.load();
  }

  /** Called for changes: this object's are shown at once. */
  show({ rows }) {
    if (this.due || !rows.some(([, , resource, key]) => resource === this.resource && key === this.key)) return;
    this.due = setTimeout(() => {
      this.due = 0;
      this.load();
    }, PAUSE);
  }

  async load() {
    const turn = (this.turn = (this.turn ?? 0) + 1);
    try {
      const found = await json(`object?${new URLSearchParams({ resource: this.resource, key: this.key })}`);
      if (turn !== this.turn) return; // a newer answer is on its way
      this.found = found;
    } catch (error) {
      this.content.replaceChildren(el("p", { class: "empty", role: "alert" }, error.message));
      return;
    }
    const { object } = this.found;
    pill(this.state, object ? `version ${object.metadata?.resourceVersion ?? "unknown"}` : "not in the cache", object ? "good" : "bad");
    this.choose(this.at);
  }

  choose(at) {
    this.at = at;
    this.buttons.forEach((button, number) => button.setAttribute("aria-selected", String(number === at)));
    this.content.replaceChildren(this.found ? this.tabs[at][1]() : el("p", { class: "empty" }, "Loading…"));
  }

  now() {
    if (!this.found.object) return el("p", { class: "empty" }, "The cache does not hold this object. Its history shows earlier versions, if the window still has them.");
    return el("div", { class: "card tree" }, tree("", this.found.object, "", this.opened));
  }

  text() {
    return el("pre", { class: "card tree", tabindex: "0" }, JSON.stringify(this.found.object, null, 2));
  }

  history() {
    const versions = this.found.versions;
    if (versions.length < 1) return el("p", { class: "empty" }, "This object did not change within the window of changes that the cache keeps.");
    const shown = el("div", { class: "scroll" });
    const base = el("select", { id: "o-base", onchange: () => choose(this.version) }, ...["the version before it", "the object now"].map((name, at) => el("option", { value: String(at) }, name)));
    base.value = this.base ?? "0";
    const list = el("ol", { class: "versions card" });
    const buttons = versions.map((one, at) => {
      const label = one.event === "BEFORE" ? "earlier state" : one.event.toLowerCase();
      const what = at ? summary(versions[at - 1].object, one.object) : "the first state in the window";
      const time = one.age === null || one.age === undefined ? "" : ` ${age(one.age)} ago`;
      const version = one.object?.metadata?.resourceVersion ?? one.version ?? "";
      return el("button", { type: "button", onclick: () => choose(at) }, `${label} `, version && el("code", {}, version), time, el("small", {}, what));
    });
    const choose = (at) => {
      buttons.forEach((button, number) => button.setAttribute("aria-pressed", String(number === at)));
      [this.version, this.base] = [at, base.value];
      const sides = base.value === "1" ? [versions[at].object, this.found.object] : [versions[at - 1]?.object ?? null, versions[at].object];
      shown.replaceChildren(compared(...sides, base.value === "1" ? ["Then", "Now"] : ["Before", "After"]));
    };
    list.append(...buttons.map((button) => el("li", {}, button)).reverse());
    choose(versions.length - 1);
    const bar = el("div", { class: "bar" }, el("label", { for: base.id }, "Compared with", base));
    return el("div", {}, bar, el("div", { class: "split" }, list, shown));
  }
}

/** A value with its members below it; `opened` remembers by path what the user has opened. */
function tree(name, value, path, opened) {
  const label = name === "" ? [] : [el("span", { class: "k" }, `${name}: `)];
  if (value === null || typeof value !== "object") return el("div", { class: "leaf" }, ...label, el("span", { class: "s" }, JSON.stringify(value)));
  const entries = Object.entries(value);
  const kind = Array.isArray(value) ? `[${entries.length}]` : `{${entries.length}}`;
  const children = el("div");
  const open = () => children.childElementCount || children.append(...entries.map(([key, one]) => tree(key, one, `${path}.${key}`, opened)));
  const toggle = (event) => {
    opened.set(path, event.target.open);
    if (event.target.open) open();
  };
  const node = el("details", { open: opened.get(path) === true, ontoggle: toggle }, el("summary", {}, ...label, el("span", { class: "c" }, kind)), children);
  if (opened.get(path)) open();
  return node;
}

function compared(before, after, names) {
  const found = difference(before ?? {}, after ?? {});
  const cell = (value, kind) => el("td", { class: value === undefined ? "" : kind }, value === undefined ? "" : JSON.stringify(value, null, 1));
  const lines = found.map((one) => el("tr", {}, el("td", { class: "key" }, one.path), cell(one.before, "del"), cell(one.after, "add")));
  return el("table", { class: "diff" }, el("caption", { class: "hidden" }, "Fields that this version changed"),
    el("thead", {}, el("tr", {}, ...["Field", ...names].map((name) => el("th", { scope: "col" }, name)))), el("tbody", {}, ...lines));
}
