// The list of all HPAs. Only the rows on the screen are elements, so 20,000 HPAs scroll as fast as 20.

import { html, plain, svg } from "./dom.js";
import { STATES, age, bar, counts, keyOf, measured, sentence, sparkline, visible, writeView } from "./view.js";

/** @typedef {import("./view.js").Row} Row */
/** @typedef {import("./view.js").View} View */

/** The height of a row in pixels, as in the style sheet. */
const HEIGHT = 56;
/** Rows above and below the screen. */
const OVERSCAN = 6;
/** Maximum number of metrics in a row. Further metrics are only counted. */
const METRICS = 2;

const COLUMNS = ["State", "HPA", "Replicas", "Metrics", "History", "Reason", "Advice", "For"];

export class List {
  /**
   * @param {(view: View) => void} show
   * @param {() => number} now
   */
  constructor(show, now) {
    this.show = show;
    this.now = now;
    /** @type {View} */
    this.view = { q: "", state: "", namespace: "", label: "", advice: "", hpa: "", page: "" };
    /** @type {Row[]} */
    this.rows = [];
    /** @type {Map<string, {row: Row, minute: number, element: HTMLElement}>} */
    this.drawn = new Map();

    this.search = /** @type {HTMLInputElement} */ (
      html("input", { type: "search", id: "q", autocomplete: "off", placeholder: "Name, target or reason" }));
    this.namespace = /** @type {HTMLSelectElement} */ (html("select", { id: "namespace" }));
    this.label = /** @type {HTMLInputElement} */ (
      html("input", { type: "text", id: "label", autocomplete: "off", placeholder: "app=web" }));
    this.states = html("div", { class: "states", role: "group", "aria-label": "State" });
    this.advised = html("button", { type: "button", class: "chip advised" });
    this.body = html("div", { class: "rows", role: "rowgroup" });
    this.scroller = html("div", { class: "scroller", role: "rowgroup", tabindex: 0, "aria-label": "HPAs" }, this.body);
    const heads = COLUMNS.map((name) => html("span", { role: "columnheader", class: name === "Advice" ? "advised" : "" }, name));
    this.table = html("div", { class: "table", role: "table", "aria-label": "HPAs" },
      html("div", { class: "head", role: "rowgroup" }, html("div", { class: "row", role: "row" }, ...heads)), this.scroller);
    this.scroller.removeAttribute("aria-label");
    this.body.removeAttribute("role");
    this.empty = html("p", { class: "empty", hidden: true });
    this.element = html("section", { class: "list", "aria-label": "All HPAs" },
      html("form", { class: "filters", role: "search" },
        html("label", {}, "Search", this.search),
        html("label", {}, "Namespace", this.namespace),
        html("label", {}, "Label", this.label)),
      html("div", { class: "chips" }, this.states, this.advised), this.empty, this.table);

    this.element.addEventListener("submit", (event) => event.preventDefault());
    this.search.addEventListener("input", () => this.filter({ q: this.search.value }));
    this.label.addEventListener("input", () => this.filter({ label: this.label.value }));
    this.namespace.addEventListener("change", () => this.filter({ namespace: this.namespace.value }));
    this.advised.addEventListener("click", () => this.filter({ advice: this.view.advice ? "" : "1" }));
    this.scroller.addEventListener("scroll", () => this.draw(), { passive: true });
    this.scroller.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.draw()).observe(this.scroller);
  }

  /** @param {Partial<View>} change */
  filter(change) {
    this.scroller.scrollTop = 0;
    this.show({ ...this.view, ...change });
  }

  /**
   * Shows rows.
   * @param {Map<string, Row>} all
   * @param {View} view
   * @param {string} reason the text if there are no rows at all
   */
  update(all, view, reason) {
    this.view = view;
    this.rows = visible(all.values(), view);
    if (document.activeElement !== this.search) this.search.value = view.q;
    if (document.activeElement !== this.label) this.label.value = view.label;
    this.fillNamespaces([...new Set([...all.values()].map((row) => row.namespace))].sort());
    this.fillStates(counts(all.values()));
    this.fillAdvised(all.values());
    this.empty.hidden = this.rows.length > 0;
    this.table.hidden = this.rows.length === 0;
    this.empty.textContent = all.size === 0 ? plain(reason) : "No HPA matches these filters.";
    this.table.setAttribute("aria-rowcount", String(this.rows.length + 1));
    this.body.style.height = `${this.rows.length * HEIGHT}px`;
    this.draw();
  }

  /** @param {string[]} names */
  fillNamespaces(names) {
    const wanted = this.view.namespace && !names.includes(this.view.namespace) ? [this.view.namespace, ...names] : names;
    const signature = wanted.join("/");
    if (this.namespace.dataset.names !== signature) {
      this.namespace.dataset.names = signature;
      this.namespace.replaceChildren(html("option", { value: "" }, "all"),
        ...wanted.map((name) => html("option", { value: name }, name)));
    }
    this.namespace.value = this.view.namespace;
  }

  /** @param {Map<string, number>} counts */
  fillStates(counts) {
    const signature = JSON.stringify([...counts, this.view.state]);
    if (this.states.dataset.counts === signature) return;
    this.states.dataset.counts = signature;
    const focused = document.activeElement instanceof HTMLElement ? document.activeElement.dataset.state : undefined;
    const buttons = [...STATES].map(([state, name]) => {
      const pressed = this.view.state === state;
      const button = html("button", { type: "button", class: `chip ${state}`, "aria-pressed": String(pressed), "data-state": state },
        `${name} ${counts.get(state) ?? 0}`);
      button.addEventListener("click", () => this.filter({ state: pressed ? "" : state }));
      return button;
    });
    this.states.replaceChildren(...buttons);
    if (focused) buttons.find((button) => button.dataset.state === focused)?.focus();
  }

  /**
   * Shows the button and the column of the advice if there is any.
   * @param {Iterable<Row>} rows
   */
  fillAdvised(rows) {
    let count = 0;
    for (const row of rows) if (row.advice) count += 1;
    this.table.classList.toggle("with-advice", count > 0);
    this.advised.hidden = count === 0 && !this.view.advice;
    this.advised.setAttribute("aria-pressed", String(this.view.advice !== ""));
    const text = `advice ${count}`;
    if (this.advised.textContent !== text) this.advised.textContent = text;
  }

  /** Draws the rows on the screen. */
  draw() {
    const first = Math.max(0, Math.floor(this.scroller.scrollTop / HEIGHT) - OVERSCAN);
    const last = Math.min(this.rows.length, Math.ceil((this.scroller.scrollTop + this.scroller.clientHeight) / HEIGHT) + OVERSCAN);
    const now = this.now();
    const minute = Math.floor(now / 10_000);
    const kept = new Map();
    for (let index = first; index < last; index += 1) {
      const row = this.rows[index];
      if (!row) continue;
      const key = keyOf(row);
      let drawn = this.drawn.get(key);
      if (!drawn || drawn.row !== row || drawn.minute !== minute) {
        const element = this.row(row, now);
        if (drawn) {
          const focused = drawn.element.contains(document.activeElement);
          drawn.element.replaceWith(element);
          if (focused) element.querySelector("a")?.focus({ preventScroll: true });
        } else {
          this.body.append(element);
        }
        drawn = { row, minute, element };
      }
      drawn.element.style.transform = `translateY(${index * HEIGHT}px)`;
      drawn.element.setAttribute("aria-rowindex", String(index + 2));
      drawn.element.dataset.index = String(index);
      kept.set(key, drawn);
    }
    for (const [key, { element }] of this.drawn) if (!kept.has(key)) element.remove();
    this.drawn = kept;
  }

  /**
   * @param {Row} row
   * @param {number} now
   */
  row(row, now) {
    const metrics = row.metrics.slice(0, METRICS).map((metric) =>
      html("span", { class: `metric${row.metrics.length === 1 ? " single" : ""}${metric.ratio !== null && metric.ratio > 1 ? " above" : ""}` },
        html("span", { title: plain(metric.name) }, metric.name), html("span", {}, measured(metric))));
    const more = row.metrics.length - METRICS;
    const cell = (/** @type {string} */ name, /** @type {import("./dom.js").Child[]} */ ...children) =>
      html("span", { role: "cell", class: name }, ...children);
    const { since } = sentence(row);
    return html("div", { class: `row ${row.state}`, role: "row" },
      cell("state", html("b", { class: `chip ${row.state}` }, STATES.get(row.state) ?? row.state)),
      cell("name", html("a", { href: writeView({ ...this.view, hpa: keyOf(row) }), title: plain(row.name) }, row.name),
        html("small", {}, `${row.namespace} · ${row.target}`)),
      cell("count", count(row)),
      cell("metrics", ...metrics, more > 0 && html("small", {}, `and ${more} more`)),
      cell("spark", spark(row, now)),
      cell("reason", ...reason(row)),
      row.advice ? cell("advised", html("span", { title: plain(row.advice.text) }, row.advice.text)) : cell("advised"),
      cell("for", since ? age(Date.parse(since), now) : ""));
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const focused = document.activeElement?.closest("[data-index]");
    const at = focused instanceof HTMLElement ? Number(focused.dataset.index) + step : Math.floor(this.scroller.scrollTop / HEIGHT);
    const index = Math.min(this.rows.length - 1, Math.max(0, at));
    const top = index * HEIGHT;
    if (top < this.scroller.scrollTop) this.scroller.scrollTop = top;
    const bottom = top + HEIGHT - this.scroller.clientHeight;
    if (bottom > this.scroller.scrollTop) this.scroller.scrollTop = bottom;
    this.draw();
    const next = this.body.querySelector(`[data-index="${index}"] a`);
    if (next instanceof HTMLElement) next.focus({ preventScroll: true });
  }
}

/**
 * The count between minReplicas and maxReplicas, as a bar and as text.
 * @param {Row} row
 */
export function count(row) {
  const { current, desired } = bar(row);
  const arrow = row.desired === row.current ? "" : ` → ${row.desired}`;
  const label = `${row.current}${arrow} replicas, between ${row.min} and ${row.max}`;
  return html("span", { class: "bar", title: label },
    html("span", { class: "number" }, `${row.current}${arrow}`),
    svg("svg", { viewBox: "0 0 100 8", preserveAspectRatio: "none", role: "img", "aria-label": label },
      svg("rect", { class: "range", width: 100, height: 8, rx: 2 }),
      svg("rect", { class: "fill", width: current * 100, height: 8, rx: 2 }),
      svg("rect", { class: "mark", x: Math.min(98, desired * 100), width: 2, height: 8 })),
    html("small", {}, `${row.min}–${row.max}`));
}

/**
 * The last decision or the reason of the state, and the effect of a scaling policy unless that effect is the reason.
 * @param {Row} row
 */
function reason(row) {
  const said = sentence(row).text;
  const text = html("span", { title: plain(said) }, said);
  if (!row.policy || row.state === "policy") return [text];
  return [html("small", { title: plain(row.policy) }, `policy: ${row.policy}`), text];
}

/**
 * @param {Row} row
 * @param {number} now
 */
function spark(row, now) {
  const lowest = Math.min(...row.history.map((count) => count.replicas));
  const highest = Math.max(...row.history.map((count) => count.replicas));
  const label = row.history.length > 0 ? `between ${lowest} and ${highest} replicas` : "no counts yet";
  return svg("svg", { viewBox: "-1 -1 102 26", preserveAspectRatio: "none", role: "img", "aria-label": label },
    svg("polyline", { points: sparkline(row.history, now, 100, 24) }));
}
