// The page: its views by the address' fragment, the stream that feeds them, keys and colours.

import { Changes } from "./changes.js";
import { pill, text } from "./dom.js";
import { Model } from "./model.js";
import { Objects } from "./objects.js";
import { Overview } from "./overview.js";
import { Queues, Workers } from "./processes.js";
import { Refused, Stream, token } from "./stream.js";

const VIEWS = { "": Overview, workers: Workers, queues: Queues, changes: Changes, objects: Objects };
const STALE_SECONDS = 4;
const get = (id) => document.getElementById(id);

const model = new Model();
let view = null;
let stream = null;

// ---- views ---------------------------------------------------------------------------------------

function go(...parts) {
  location.hash = `#/${parts.map(encodeURIComponent).join("/")}`;
}

/** A part of an address; one that nobody encoded stays as it is. */
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function show() {
  const [name = "", ...rest] = location.hash.replace(/^#\/?/, "").split("/").map(decoded);
  view?.leave?.();
  view = new (Object.hasOwn(VIEWS, name) ? VIEWS[name] : Overview)({ model, go, follow }, rest);
  for (const link of get("nav").children) {
    if (link.getAttribute("href") === `#/${name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${view.title} · ${model.picture?.cache ?? "shmcache"}`;
  if (model.picture) present();
}

function present() {
  if (view.node.parentNode !== get("main")) get("main").replaceChildren(view.node);
  view.draw();
}

// ---- the stream ----------------------------------------------------------------------------------

function follow(query) {
  const wanted = JSON.stringify(query);
  if (stream && JSON.stringify(stream.query) === wanted) return;
  stream?.close();
  stream = new Stream(query, { picture: pictured, changes: changed, refused, lost });
}

function pictured(picture) {
  if (picture.error) {
    notice(`The server cannot look at the cache: ${picture.error}`);
    return;
  }
  model.take(picture);
  text(get("name"), picture.cache);
  pill(get("link"), "live", "good");
  const { writer } = picture;
  const dead = writer.beats ? "" : writer.closed ? "The reflector has ended" : writer.alive ? "The reflector does not respond" : "The reflector has died";
  notice(dead && `${dead}: these data do not change any more.`);
  if (document.visibilityState === "visible") present();
}

function changed(batch) {
  view.show?.(batch);
  view.part?.show?.(batch);
}

function refused(error) {
  lost(new Refused(error.code, error.message));
}

function lost(error) {
  pill(get("link"), "disconnected", "bad");
  if (error.code === 401) get("login").showModal();
  notice(error instanceof Refused ? error.message : "No connection to the server: the data are old. Connecting again…");
}

function notice(message) {
  const node = get("notice");
  node.hidden = !message;
  text(node, message || "");
}

setInterval(() => {
  const seconds = (performance.now() - model.at) / 1000;
  if (model.picture && seconds > STALE_SECONDS) {
    pill(get("link"), `${Math.round(seconds)} s old`, "bad");
    notice(`The last update came ${Math.round(seconds)} s ago: the data are old.`);
  }
}, 1000);

get("login").addEventListener("close", () => {
  token.set(get("token").value.trim());
  stream = null;
  follow({});
  show();
});

// ---- keys and colours ----------------------------------------------------------------------------

const THEMES = [["", "◐", "automatic"], ["light", "☀", "light"], ["dark", "☾", "dark"]];

function theme(step = 0) {
  const at = (Math.max(0, THEMES.findIndex(([name]) => name === (localStorage.getItem("theme") ?? ""))) + step) % THEMES.length;
  const [name, sign, label] = THEMES[at];
  localStorage.setItem("theme", name);
  document.documentElement.dataset.theme = name;
  text(get("theme"), sign);
  get("theme").setAttribute("aria-label", `Colour scheme: ${label}`);
}

function move(step) {
  const lines = [...get("main").querySelectorAll("tbody tr[tabindex]")];
  const at = lines.indexOf(document.activeElement);
  lines[Math.min(Math.max(at + step, 0), lines.length - 1)]?.focus();
}

const GO = { o: "", w: "workers", q: "queues", c: "changes", b: "objects" };
const KEYS = { "/": () => get("find-text").focus(), "?": () => get("keys").showModal(), t: () => theme(1), j: () => move(1), k: () => move(-1), p: () => view.pause?.() };
let leader = 0;

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select, textarea") || document.querySelector("dialog[open]")) return;
  if (performance.now() - leader < 1000 && event.key in GO) {
    leader = 0;
    go(GO[event.key]);
  } else if (event.key === "g") leader = performance.now();
  else if (event.key in KEYS) KEYS[event.key]();
  else return;
  event.preventDefault();
});

get("theme").addEventListener("click", () => theme(1));
get("help").addEventListener("click", () => get("keys").showModal());
get("find").addEventListener("submit", (event) => {
  event.preventDefault();
  go("objects", "", get("find-text").value.trim());
});
window.addEventListener("hashchange", () => {
  show();
  get("main").focus({ preventScroll: true });
});

theme();
show();
follow({});
