// Connects the server's events to the views. The address after `#` holds the view, so a view can be shared, and the
// browser's buttons work.

import { ControllerPage } from "./controller.js";
import { byId, plain } from "./dom.js";
import { receive } from "./events.js";
import { List } from "./list.js";
import { One } from "./one.js";
import { age, counts, keyOf, readView, writeView } from "./view.js";

/** @typedef {import("./view.js").Row} Row */

/** @type {Map<string, Row>} */
const rows = new Map();
/** The state of the watch, and the time of the last event of this server. */
const live = {
  synced: false, error: "", advice: "", ageSeconds: 0, at: Date.now(), connected: true, refused: false,
};

const now = () => Date.now();
const list = new List((view) => {
  history.replaceState(null, "", writeView(view));
  schedule();
}, now);
const one = new One(now);
const controller = new ControllerPage(now);
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

/** Whether the address holds a view, and not an anchor such as that of the skip link. */
const isView = () => location.hash === "" || location.hash.includes("=") || location.hash === "#";
let view = readView(location.hash);

function render() {
  if (isView()) view = readView(location.hash);
  const shown = view.hpa ? one : view.page === "controller" ? controller : list;
  if (main.firstChild !== shown.element) {
    main.replaceChildren(shown.element);
    if ("heading" in shown) shown.heading.focus();
  }
  if (shown === one) one.update(rows, view);
  else if (shown === controller) controller.update(view);
  else list.update(rows, view, reason());
  document.title = `${shown === one ? plain(view.hpa) : shown === controller ? "Controller" : "HPAs"} · Concertina`;
  mark("to-hpas", shown === list);
  mark("to-controller", shown === controller);
  showState();
}

/** The text of a list without rows. */
function reason() {
  if (!live.synced) return "Reading the HPAs …";
  return "The cluster has no HPAs.";
}

/**
 * Marks the link of the shown page. Removes the mark from other links.
 * @param {string} id
 * @param {boolean} current
 */
function mark(id, current) {
  if (current) byId(id).setAttribute("aria-current", "page");
  else byId(id).removeAttribute("aria-current");
}

function showState() {
  const trouble = counts(rows.values());
  const bad = [...trouble].filter(([state]) => ["unable", "maximum", "flapping", "late", "contested"].includes(state));
  const sum = bad.reduce((sum, [, count]) => sum + count, 0);
  set(byId("summary"), `${rows.size} ${rows.size === 1 ? "HPA" : "HPAs"}, ${sum} in trouble`);
  const stale = live.ageSeconds * 1000 + (now() - live.at);
  const notice = byId("notice");
  let text = "";
  if (!live.connected) {
    const why = live.refused ? "refuses the connection: open the address that it printed last" : "does not respond";
    text = `The server of this page ${why}. This view is ${age(live.at, now())} old.`;
  }
  else if (live.error) text = `The API server cannot be watched: ${live.error}. This view is ${age(0, stale)} old.`;
  else if (live.advice) text = `The advice cannot be read: ${live.advice}. The page shows what it read before.`;
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

receive({
  rows: takeRows,
  status: (data) => {
    Object.assign(live, { error: "" }, JSON.parse(data), { at: now(), connected: true });
    schedule();
  },
}, (refused) => {
  live.connected = false;
  live.refused = refused;
  schedule();
});
addEventListener("hashchange", schedule);
setInterval(schedule, 1000);

addEventListener("keydown", (event) => {
  const typing = event.target instanceof HTMLInputElement || event.target instanceof HTMLSelectElement;
  if (event.key === "/" && !typing && !view.hpa && !view.page) {
    event.preventDefault();
    list.search.focus();
  }
  if (event.key === "Escape" && (view.hpa || view.page)) location.hash = writeView({ ...view, hpa: "", page: "" });
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
