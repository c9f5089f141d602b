// Elements without a framework: made by el(), updated in place by text() and rows().

/** An element with properties, and children that are elements or text. */
export function el(name, props = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key === "class") made.className = value;
    else if (key in made && typeof value !== "string") made[key] = value;
    else made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.filter((one) => one !== null && one !== undefined));
  return made;
}

/** Changes the text of an element, if it differs: selections and screen readers stay undisturbed. */
export function text(node, value) {
  if (node.textContent !== value) node.textContent = value;
}

export function pill(node, label, mood = "") {
  text(node, label);
  const wanted = `pill ${mood}`.trim();
  if (node.className !== wanted) node.className = wanted;
}

/** Makes the children of a body the rows of these items: keyed, kept, moved only if needed. */
export function rows(body, items, key, make, update) {
  const old = (body.made ??= new Map());
  const seen = new Set();
  let at = body.firstElementChild;
  for (const item of items) {
    const id = key(item);
    seen.add(id);
    let row = old.get(id);
    if (!row) {
      row = make(item);
      old.set(id, row);
    }
    update(row, item);
    if (row === at) at = at.nextElementSibling;
    else body.insertBefore(row, at);
  }
  for (const [id, row] of old) {
    if (!seen.has(id)) {
      row.remove();
      old.delete(id);
    }
  }
}

/** A table of columns {name, label, n: numeric, get, show, cell}; sorted by a click on a heading. */
export class Table {
  constructor(caption, columns, { key, open, sort } = {}) {
    this.columns = columns;
    this.key = key;
    this.open = open;
    this.sort = sort ?? null;
    this.body = el("tbody");
    this.heads = columns.map((column) => {
      const button = el("button", { type: "button", onclick: () => this.order(column.name) }, column.label);
      return el("th", { scope: "col", class: column.n ? "n" : "" }, column.get ? button : column.label);
    });
    this.node = el(
      "div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
      el("table", {}, el("caption", { class: "hidden" }, caption), el("thead", {}, el("tr", {}, ...this.heads)), this.body),
    );
    this.items = [];
    this.show();
  }

  order(name) {
    const down = this.sort?.name === name && !this.sort.down;
    this.sort = { name, down };
    this.draw(this.items);
  }

  show() {
    this.columns.forEach((column, at) => {
      const sorted = column.name !== undefined && this.sort?.name === column.name;
      if (sorted) this.heads[at].setAttribute("aria-sort", this.sort.down ? "descending" : "ascending");
      else this.heads[at].removeAttribute("aria-sort");
    });
  }

  draw(items) {
    this.items = items;
    this.show();
    const column = this.sort && this.columns.find((one) => one.name === this.sort.name);
    const ordered = column ? [...items].sort((a, b) => compare(column.get(a), column.get(b)) * (this.sort.down ? -1 : 1)) : items;
    rows(this.body, ordered, this.key, (item) => this.row(item), (row, item) => this.update(row, item));
  }

  row(item) {
    const row = el("tr", {}, ...this.columns.map((column) => {
      const cell = el("td", { class: [column.n ? "n" : "", column.class ?? ""].join(" ").trim() });
      if (column.cell) cell.append((cell.inner = column.cell(item)));
      return cell;
    }));
    if (this.open) {
      row.tabIndex = 0;
      row.addEventListener("click", () => this.open(row.item));
      row.addEventListener("keydown", (event) => event.key === "Enter" && this.open(row.item));
    }
    return row;
  }

  update(row, item) {
    row.item = item;
    this.columns.forEach((column, at) => {
      const cell = row.children[at];
      if (column.draw) column.draw(cell.inner, item);
      else {
        const value = column.show ? column.show(item) : String(column.get(item) ?? "");
        text(cell, value);
        if (column.class === "cut" && cell.title !== value) cell.title = value;
      }
    });
  }
}

function compare(a, b) {
  if (typeof a === "number" || typeof b === "number") return (a ?? -1) - (b ?? -1);
  return String(a ?? "").localeCompare(String(b ?? ""));
}
