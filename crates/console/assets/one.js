// The page of one HPA: its row, and the explanation that the server computes for it.

import { html } from "./dom.js";
import { count } from "./list.js";
import { STATES, age, measured, writeView } from "./view.js";

/** @typedef {import("./view.js").Row} Row */
/** @typedef {import("./view.js").View} View */

/** The minimum time between two explanations, in milliseconds. */
const INTERVAL = 5_000;

export class One {
  /** @param {() => number} now */
  constructor(now) {
    this.now = now;
    this.key = "";
    /** @type {Row | undefined} */
    this.row = undefined;
    /** @type {Row | undefined} the row that the explanation is about */
    this.explained = undefined;
    this.started = 0;
    this.running = false;
    this.heading = html("h2", { tabindex: -1 });
    this.facts = html("div", { class: "facts" });
    this.answer = html("div", { class: "answer", "aria-live": "polite" });
    this.back = html("a", { class: "back" }, "← All HPAs");
    this.element = html("section", { class: "one", "aria-label": "One HPA" }, this.back, this.heading, this.facts, this.answer);
  }

  /**
   * Shows an HPA.
   * @param {Map<string, Row>} all
   * @param {View} view
   */
  update(all, view) {
    this.back.setAttribute("href", writeView({ ...view, hpa: "" }));
    if (this.key !== view.hpa) {
      this.key = view.hpa;
      this.explained = undefined;
      this.started = 0;
      this.answer.replaceChildren(html("p", {}, "Explaining …"));
    }
    this.heading.replaceChildren(html("span", {}, this.key));
    this.row = all.get(this.key);
    if (!this.row) {
      this.facts.replaceChildren(html("p", { class: "gone" }, "This HPA does not exist, or has been deleted. The text below is the last explanation."));
      return;
    }
    this.facts.replaceChildren(...facts(this.row, this.now()));
    this.explain();
  }

  /** Explains the row, if it has changed and the last explanation is not too recent. */
  explain() {
    const row = this.row;
    if (!row || this.running || this.explained === row || this.now() - this.started < INTERVAL) return;
    this.running = true;
    this.started = this.now();
    this.explained = row;
    const key = this.key;
    const path = [row.namespace, row.name].map(encodeURIComponent).join("/");
    fetch(`hpas/${path}`)
      .then(async (response) => (response.ok ? answer(await response.json()) : [failure(await response.text())]))
      .catch((error) => [failure(`the server of this page does not respond: ${error}`)])
      .then((parts) => {
        this.running = false;
        if (this.key === key) replace(this.answer, parts);
        else this.explain();
      });
  }
}

/**
 * Replaces children, and keeps which details are open.
 * @param {HTMLElement} parent
 * @param {HTMLElement[]} children
 */
function replace(parent, children) {
  const open = new Set([...parent.querySelectorAll("details[open] > summary")].map((summary) => summary.textContent));
  parent.replaceChildren(...children);
  for (const details of parent.querySelectorAll("details")) {
    if (open.has(details.querySelector("summary")?.textContent ?? "")) details.open = true;
  }
}

/** @param {string} text */
const failure = (text) => html("p", { class: "failure" }, text);

/**
 * @param {Row} row
 * @param {number} now
 */
function facts(row, now) {
  const term = (/** @type {string} */ name, /** @type {import("./dom.js").Child[]} */ ...values) =>
    html("div", {}, html("dt", {}, name), html("dd", {}, ...values));
  const metrics = row.metrics.map((metric) =>
    html("li", { class: metric.ratio !== null && metric.ratio > 1 ? "above" : "" }, `${metric.name} ${measured(metric)}`));
  return [html("dl", {},
    term("State", html("b", { class: `chip ${row.state}` }, STATES.get(row.state) ?? row.state)),
    term("Target", row.target),
    term("Replicas", count(row)),
    term("Metrics", metrics.length > 0 ? html("ul", {}, ...metrics) : "none"),
    row.policy && term("Scaling policy", row.policy),
    term("Last change", row.scaled ? `${age(Date.parse(row.scaled), now)} ago` : "never"),
    term("Status written by", row.writers.join(", ") || "unknown"),
    term("Reason", row.reason))];
}

/**
 * The explanation as elements.
 * @param {any} it
 * @returns {HTMLElement[]}
 */
function answer(it) {
  const section = (/** @type {string} */ title, /** @type {HTMLElement[]} */ ...children) =>
    html("section", {}, html("h3", {}, title), ...children);
  const table = (/** @type {string[]} */ heads, /** @type {any[][]} */ rows) =>
    html("div", { class: "wide", tabindex: 0, role: "group", "aria-label": heads.join(", ") }, html("table", {},
      html("thead", {}, html("tr", {}, ...heads.map((head) => html("th", { scope: "col" }, head)))),
      html("tbody", {}, ...rows.map((row) => html("tr", {}, ...row.map((cell) => html("td", {}, cell)))))));
  const findings = (it.findings ?? []).map((/** @type {any} */ finding) =>
    html("li", { class: finding.severity }, html("b", {}, `${finding.severity} · ${finding.code}`),
      html("p", {}, finding.message), html("p", { class: "advice" }, finding.advice)));
  const conditions = (it.conditions ?? []).map((/** @type {any} */ one) =>
    [one.type, one.status, one.reason, one.message, time(one.lastTransitionTime)]);
  const events = (it.recentEvents ?? []).map((/** @type {any} */ one) =>
    [time(one.last), one.count, one.reason, one.message, one.reporter]);
  const parts = [
    section("Decision", html("p", { class: "sentence" }, it.sentence), drawing(it.timeline)),
    section("Findings", findings.length > 0 ? html("ul", { class: "findings" }, ...findings) : html("p", {}, "None.")),
    section("Steps", html("pre", { tabindex: 0 }, ...lines(it.text))),
    section("Conditions", table(["Type", "Status", "Reason", "Message", "Since"], conditions)),
    section("Events", events.length > 0
      ? table(["Last", "Count", "Reason", "Message", "From"], events)
      : html("p", {}, "None that this user can read.")),
  ];
  if (it.yaml) {
    parts.push(html("details", {}, html("summary", {}, "YAML"), html("pre", { tabindex: 0 }, ...lines(it.yaml))));
  }
  return parts;
}

/**
 * A drawing of the server, which escapes its texts. A parsed document runs no scripts.
 * @param {string} markup
 */
function drawing(markup) {
  const parsed = new DOMParser().parseFromString(markup, "text/html").body.firstElementChild;
  const element = html("div", { class: "timeline", role: "img", "aria-label": "Desired replicas over time, with rescales and warnings" });
  if (parsed) element.append(document.adoptNode(parsed));
  return element;
}

/**
 * The lines of a text. Hidden characters other than line breaks are shown.
 * @param {string} text
 */
function lines(text) {
  return text.split("\n").flatMap((line) => [line, html("br")]);
}

/** @param {string | null | undefined} text */
function time(text) {
  return text ? html("time", { datetime: text }, text.replace("T", " ").replace("Z", " UTC")) : "";
}

