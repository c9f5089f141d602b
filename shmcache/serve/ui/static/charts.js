// Lines over time, as SVG. Nothing moves by itself: a picture is drawn when a value has come.

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 300;

function part(name, props) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(props)) made.setAttribute(key, value);
  return made;
}

/** Values at equal distances, the newest last; old ones are forgotten. */
export class Series {
  constructor(most = 600) {
    this.most = most;
    this.values = [];
  }

  push(value) {
    this.values.push(value);
    if (this.values.length > this.most) this.values.shift();
  }

  get last() {
    return this.values.at(-1) ?? null;
  }

  get top() {
    return this.values.reduce((top, value) => Math.max(top, value ?? 0), 0);
  }
}

function points(values, height, top, slots) {
  const step = WIDTH / Math.max(slots - 1, 1);
  const start = WIDTH - (values.length - 1) * step;
  return values.map((value, at) => `${(start + at * step).toFixed(1)},${(height - 2 - ((value ?? 0) / top) * (height - 6)).toFixed(1)}`);
}

/** A small line without axes, for a cell of a table. */
export function spark() {
  const svg = part("svg", { class: "spark", viewBox: `0 0 ${WIDTH} 20`, preserveAspectRatio: "none", "aria-hidden": "true" });
  const line = part("polyline", { class: "line" });
  svg.append(line);
  svg.draw = (series) => {
    const values = series.values.slice(-120);
    line.setAttribute("points", points(values, 20, Math.max(...values, 1e-9), 120).join(" "));
  };
  return svg;
}

/** A card with a line over the last ten minutes. */
export function chart(title, format) {
  const card = document.createElement("section");
  card.className = "card chart";
  const heading = document.createElement("h3");
  heading.textContent = title;
  const now = document.createElement("span");
  now.className = "now";
  const svg = part("svg", { viewBox: `0 0 ${WIDTH} 96`, preserveAspectRatio: "none", role: "img" });
  const area = part("polygon", { class: "area" });
  const line = part("polyline", { class: "line" });
  for (const at of [2, 48, 94]) svg.append(part("line", { class: "grid", x1: 0, x2: WIDTH, y1: at, y2: at }));
  svg.append(area, line);
  const axis = document.createElement("div");
  axis.className = "axis";
  const [left, right] = [document.createElement("span"), document.createElement("span")];
  axis.append(left, right);
  card.append(now, heading, svg, axis);
  card.draw = (series) => {
    const top = series.top || 1;
    const drawn = points(series.values, 96, top, Math.max(series.values.length, 60));
    line.setAttribute("points", drawn.join(" "));
    const first = drawn[0]?.split(",")[0] ?? 0;
    area.setAttribute("points", `${first},94 ${drawn.join(" ")} ${WIDTH},94`);
    now.textContent = format(series.last);
    left.textContent = `${Math.max(series.values.length, 60)} s ago`;
    right.textContent = `top ${format(series.top)}`;
    svg.setAttribute("aria-label", `${title}: now ${format(series.last)}, at most ${format(series.top)}`);
  };
  return card;
}
