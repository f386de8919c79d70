// The page of one HPA: its row, and the explanation that the server computes for it.

import { html, plain } from "./dom.js";
import { count } from "./list.js";
import { Timeline } from "./timeline.js";
import { STATES, age, measured, writeView } from "./view.js";
import { WhatIf } from "./whatif.js";

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
    this.answer = html("div", { class: "answer" });
    this.failed = html("p", { role: "alert", hidden: true });
    this.sentence = html("p", { class: "sentence", "aria-live": "polite" });
    this.source = html("p", { class: "advice" });
    this.timeline = new Timeline("the last hours");
    this.decision = html("section", {}, html("h3", {}, "Decision"), this.sentence, this.timeline.element, this.source);
    this.findings = html("section", {});
    this.advice = html("section", { class: "proposal" });
    this.whatif = new WhatIf();
    this.rest = html("div", { class: "rest" });
    this.back = html("a", { class: "back" }, "← All HPAs");
    this.element = html("section", { class: "one", "aria-label": "One HPA" }, this.back, this.heading, this.facts, this.failed, this.answer);
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
      this.show({});
      this.timeline.hide();
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
      .then(async (response) => (response.ok ? { it: await response.json() } : { failure: await response.text() }))
      .catch((error) => ({ failure: `the server of this page does not respond: ${error}` }))
      .then((answer) => {
        this.running = false;
        if (this.key === key) this.show(answer);
        else this.explain();
      });
  }

  /**
   * Shows an explanation. A failure keeps the last one.
   * @param {{it?: any, failure?: string}} answer
   */
  show({ it, failure }) {
    this.failed.hidden = !failure;
    this.failed.className = failure ? "failure" : "";
    this.failed.replaceChildren(html("span", {}, failure ?? ""));
    if (!it) {
      if (!this.answer.contains(this.decision)) this.answer.replaceChildren();
      return;
    }
    if (this.sentence.textContent !== plain(it.sentence)) this.sentence.replaceChildren(html("span", {}, it.sentence));
    this.timeline.update(it.timeline);
    this.source.hidden = !it.timeline;
    this.source.replaceChildren(html("span", {}, it.recorded
      ? "Every decision is that of the controller's record."
      : "Counts and values are those that this command and events have seen. With Concertina's record, every decision is shown."));
    this.findings.replaceChildren(...findings(it));
    this.advice.hidden = !it.advice;
    this.advice.replaceChildren(...(it.advice ? this.advised(it.advice) : []));
    this.whatif.update(this.key, it.form);
    replace(this.rest, rest(it));
    if (!this.answer.contains(this.decision)) {
      this.answer.replaceChildren(this.decision, this.findings, this.advice, this.whatif.element, this.rest);
    }
  }

  /**
   * The advice from the past of the HPA.
   * @param {{until: string, sentence: string, rows: string[][], command: string}} it
   * @returns {HTMLElement[]}
   */
  advised(it) {
    const parts = [html("h3", {}, "Advice"), html("p", { class: "sentence" }, it.sentence)];
    if (it.rows.length > 0) parts.push(table(["", "today", "advised"], it.rows));
    if (it.command) parts.push(this.whatif.copied(it.command));
    return [...parts, html("p", { class: "advice" }, "From the past until ", time(it.until), ".")];
  }
}

/**
 * Replaces children. Open details stay open.
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
    row.decision && term("Last decision", `${row.decision}${row.decided ? `, for ${age(Date.parse(row.decided), now)}` : ""}`),
    term("Reason", row.reason))];
}

/**
 * The findings, each with advice. Empty without a decision.
 * @param {any} it
 * @returns {HTMLElement[]}
 */
function findings(it) {
  if (!it.findings) return [];
  const found = it.findings.map((/** @type {any} */ finding) =>
    html("li", { class: finding.severity }, html("b", {}, `${finding.severity} · ${finding.code}`),
      html("p", {}, finding.message), html("p", { class: "advice" }, finding.advice)));
  return [html("h3", {}, "Findings"), found.length > 0 ? html("ul", { class: "findings" }, ...found) : html("p", {}, "None.")];
}

/**
 * The steps, conditions, events and the object.
 * @param {any} it
 * @returns {HTMLElement[]}
 */
function rest(it) {
  const section = (/** @type {string} */ title, /** @type {HTMLElement[]} */ ...children) =>
    html("section", {}, html("h3", {}, title), ...children);
  const conditions = (it.conditions ?? []).map((/** @type {any} */ one) =>
    [one.type, one.status, one.reason, one.message, time(one.lastTransitionTime)]);
  const events = (it.recentEvents ?? []).map((/** @type {any} */ one) =>
    [time(one.last), one.count, one.reason, one.message, one.reporter]);
  const parts = [
    section("Steps", html("pre", { tabindex: 0 }, ...lines(it.text))),
    section("Conditions", table(["Type", "Status", "Reason", "Message", "Since"], conditions)),
    section("Events", events.length > 0
      ? table(["Last", "Count", "Reason", "Message", "From"], events)
      : html("p", {}, "None that this user can read.")),
  ];
  if (it.yaml) {
    parts.push(html("details", {}, html("summary", {}, "YAML"), yaml(it.yaml, it.marks ?? [])));
  }
  return parts;
}

/**
 * @param {string[]} heads
 * @param {any[][]} rows
 */
function table(heads, rows) {
  return html("div", { class: "wide", tabindex: 0, role: "group", "aria-label": heads.join(", ") }, html("table", {},
    html("thead", {}, html("tr", {}, ...heads.map((head) => html("th", { scope: "col" }, head)))),
    html("tbody", {}, ...rows.map((row) => html("tr", {}, ...row.map((cell) => html("td", {}, cell)))))));
}

/**
 * The object. Each line that mattered for the decision is marked with the reason.
 * @param {string} text
 * @param {{line: number, why: string}[]} marks
 */
function yaml(text, marks) {
  const marked = new Map(marks.map((mark) => [mark.line, mark.why]));
  const shown = text.split("\n").flatMap((line, index) => {
    const why = marked.get(index + 1);
    if (why === undefined) return [line, html("br")];
    return [html("mark", {}, line, html("span", { class: "hidden" }, " (this field mattered: "), html("small", { class: "why" }, why),
      html("span", { class: "hidden" }, ")")), html("br")];
  });
  return html("pre", { tabindex: 0 }, ...shown);
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

