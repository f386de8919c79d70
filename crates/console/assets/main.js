// Connects the server's events to the views. The address after `#` holds the view, so that it can be shared
// and the browser's buttons work.

import { byId, plain } from "./dom.js";
import { List } from "./list.js";
import { One } from "./one.js";
import { age, counts, keyOf, readView, writeView } from "./view.js";

/** @typedef {import("./view.js").Row} Row */

/** @type {Map<string, Row>} */
const rows = new Map();
/** The state of the watch, and the time of the last event of this server. */
const live = { synced: false, error: "", ageSeconds: 0, at: Date.now(), connected: true };

const now = () => Date.now();
const list = new List((view) => {
  history.replaceState(null, "", writeView(view));
  schedule();
}, now);
const one = new One(now);
const main = byId("main");

let scheduled = false;
function schedule() {
  if (scheduled) return;
  scheduled = true;
  requestAnimationFrame(() => {
    scheduled = false;
    render();
  });
}

/** Whether the address is one of this page, and not an anchor such as that of the skip link. */
const isView = () => location.hash === "" || location.hash.includes("=") || location.hash === "#";
let view = readView(location.hash);

function render() {
  if (isView()) view = readView(location.hash);
  const element = view.hpa ? one.element : list.element;
  if (main.firstChild !== element) {
    main.replaceChildren(element);
    if (view.hpa) one.heading.focus();
  }
  if (view.hpa) one.update(rows, view);
  else list.update(rows, view, live.synced ? "The cluster has no HPAs." : "Reading the HPAs …");
  document.title = view.hpa ? `${plain(view.hpa)} · Concertina` : "HPAs · Concertina";
  showState();
}

function showState() {
  const trouble = counts(rows.values());
  const bad = [...trouble].filter(([state]) => ["unable", "maximum", "flapping", "contested"].includes(state));
  const sum = bad.reduce((sum, [, count]) => sum + count, 0);
  set(byId("summary"), `${rows.size} HPAs, ${sum} in trouble`);
  const stale = live.ageSeconds * 1000 + (now() - live.at);
  const notice = byId("notice");
  let text = "";
  if (!live.connected) text = `The server of this page does not respond. This view is ${age(live.at, now())} old.`;
  else if (live.error) text = `The API server cannot be watched: ${live.error}. This view is ${age(0, stale)} old.`;
  set(notice, text);
  notice.hidden = text === "";
}

/**
 * Sets a text if it differs, so that a screen reader announces changes only.
 * @param {HTMLElement} element
 * @param {string} text
 */
function set(element, text) {
  if (element.textContent !== plain(text)) element.textContent = plain(text);
}

/** @param {string} data */
function takeRows(data) {
  const event = JSON.parse(data);
  if (event.all) rows.clear();
  for (const [namespace, name] of event.removed) rows.delete(keyOf({ namespace, name }));
  for (const row of event.rows) rows.set(keyOf(row), row);
  live.at = now();
  live.connected = true;
  schedule();
}

const events = new EventSource("stream");
events.addEventListener("rows", (event) => takeRows(event.data));
events.addEventListener("status", (event) => {
  Object.assign(live, { error: "" }, JSON.parse(event.data), { at: now(), connected: true });
  schedule();
});
events.addEventListener("error", () => {
  live.connected = false;
  schedule();
});
addEventListener("hashchange", schedule);
setInterval(schedule, 1000);

addEventListener("keydown", (event) => {
  const typing = event.target instanceof HTMLInputElement || event.target instanceof HTMLSelectElement;
  if (event.key === "/" && !typing && !view.hpa) {
    event.preventDefault();
    list.search.focus();
  }
  if (event.key === "Escape" && view.hpa) location.hash = writeView({ ...view, hpa: "" });
});

const theme = byId("theme");
const THEMES = ["system", "light", "dark"];
theme.addEventListener("click", () => {
  const next = THEMES[(THEMES.indexOf(document.documentElement.dataset.theme ?? "system") + 1) % THEMES.length] ?? "system";
  document.documentElement.dataset.theme = next;
  theme.textContent = `Theme: ${next}`;
  theme.setAttribute("aria-label", `Theme: ${next}`);
});

schedule();
