// The question what an HPA would have done with other fields. The server simulates. It changes nothing: the answer
// ends in a command to copy.

import { html } from "./dom.js";
import { Timeline } from "./timeline.js";

/**
 * @typedef {{window: number | null, tolerance: string, select: string, policies: string}} Rules
 * @typedef {{metrics: {index: number, name: string, kind: string, value: string}[], min: number | null,
 *   max: number | null, up: Rules, down: Rules, policy: string}} Form
 * @typedef {{sentence: string, drawing: import("./timeline.js").Drawing, heads: [string, string][],
 *   rows: {name: string, cells: (string | null)[]}[], loads: {metric: string, origin: string, problem: string | null}[],
 *   notes: string[], command: string, diff: string}} Answer
 * @typedef {{name: string, label: string, value: string, type: string, range?: [number, number, number], hint?: string,
 *   choices?: string[]}} Field
 */

/** The name of a target, by the field of the API. */
const KINDS = new Map([["averageUtilization", "% of requests"], ["averageValue", "per pod"], ["value", "in total"]]);

/**
 * The fields of a form, in groups.
 * @param {Form} form
 * @returns {[string, Field[]][]}
 */
export function fieldsOf(form) {
  const most = Math.max(20, 3 * (form.max ?? 1));
  const text = (/** @type {number | null} */ value) => (value === null ? "" : String(value));
  const rules = (/** @type {string} */ prefix, /** @type {Rules} */ it) => /** @type {Field[]} */ ([
    { name: `${prefix}Window`, label: "Window, seconds", value: text(it.window), type: "number", range: [0, 3600, 15], hint: "default" },
    { name: `${prefix}Tolerance`, label: "Tolerance", value: it.tolerance, type: "text", hint: "of the controller" },
    { name: `${prefix}Policies`, label: "Rates", value: it.policies, type: "text", hint: "Pods:4:60,Percent:100:15" },
    { name: `${prefix}Select`, label: "Select", value: it.select, type: "choice", choices: ["", "Max", "Min", "Disabled"] },
  ]);
  const targets = form.metrics.map((metric) => {
    const percent = metric.kind === "averageUtilization";
    const number = Number(metric.value);
    const top = percent ? 100 : Math.max(1, Math.ceil(number * 3));
    return /** @type {Field} */ ({
      name: `metric${metric.index}`, label: `${metric.name}, ${KINDS.get(metric.kind) ?? metric.kind}`, value: metric.value,
      type: percent ? "number" : "text",
      range: Number.isFinite(number) && number > 0 ? [1, top, 1] : undefined,
    });
  });
  return [
    ["Replicas", [
      { name: "min", label: "minReplicas", value: text(form.min), type: "number", range: [0, most, 1] },
      { name: "max", label: "maxReplicas", value: text(form.max), type: "number", range: [1, most, 1] },
    ]],
    ["Targets", targets],
    ["Scale down", rules("down", form.down)],
    ["Scale up", rules("up", form.up)],
    ["Scaling policy", [{ name: "policy", label: "Annotation concertina.dev/policy, YAML", value: form.policy, type: "area" }]],
  ];
}

/**
 * The query of the changed fields.
 * @param {Map<string, string>} before
 * @param {Map<string, string>} after
 * @param {string} hours
 */
export function queryOf(before, after, hours) {
  const query = new URLSearchParams({ hours });
  for (const [name, value] of after) if (value.trim() !== (before.get(name) ?? "").trim()) query.set(name, value);
  return query.toString();
}

export class WhatIf {
  constructor() {
    this.key = "";
    this.signature = "";
    /** @type {Map<string, string>} the values of the HPA */
    this.before = new Map();
    /** @type {Map<string, HTMLInputElement | HTMLSelectElement | HTMLTextAreaElement>} */
    this.inputs = new Map();
    /** @type {AbortController | undefined} */
    this.running = undefined;
    this.drawing = new Timeline("the simulation");
    this.fields = html("div", { class: "groups" });
    this.hours = /** @type {HTMLSelectElement} */ (html("select", {},
      ...[[1, "1 h"], [6, "6 h"], [24, "24 h"]].map(([value, name]) => html("option", { value, selected: value === 24 }, name))));
    this.play = html("button", { type: "submit" }, "Play");
    this.cancel = html("button", { type: "button", hidden: true }, "Stop");
    this.reset = html("button", { type: "button" }, "Reset");
    this.status = html("p", { class: "status", role: "status" });
    this.error = html("p", { role: "alert", id: "whatif-error", hidden: true });
    this.result = html("div", { class: "result" });
    this.form = html("form", { class: "whatif", novalidate: true },
      html("p", { class: "advice" }, "Plays the recent past of this HPA with other fields, in a simulation. It changes nothing."),
      this.fields,
      html("div", { class: "actions" }, html("label", {}, "Play the last", this.hours), this.play, this.cancel, this.reset), this.error, this.status, this.result);
    this.element = html("details", { class: "card", hidden: true }, html("summary", {}, "What if"), this.form);
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.ask();
    });
    this.cancel.addEventListener("click", () => this.stop("stopped"));
    this.reset.addEventListener("click", () => {
      for (const [name, input] of this.inputs) this.set(name, input, this.before.get(name) ?? "");
      this.fail("", null);
    });
  }

  /**
   * Shows the fields of an HPA. Entered values stay while the HPA is the same.
   * @param {string} key
   * @param {Form | null | undefined} form
   */
  update(key, form) {
    const signature = JSON.stringify(form ?? null);
    if (this.key === key && this.signature === signature) return;
    if (this.key !== key) {
      this.stop("");
      this.result.replaceChildren();
      this.drawing.update(null);
      this.fail("", null);
      if (this.element instanceof HTMLDetailsElement) this.element.open = false;
    }
    const entered = new Map();
    if (this.key === key) {
      for (const [name, input] of this.inputs) if (input.value !== (this.before.get(name) ?? "")) entered.set(name, input.value);
    }
    this.key = key;
    this.signature = signature;
    this.element.hidden = !form;
    this.inputs.clear();
    this.before.clear();
    if (!form) return;
    const groups = fieldsOf(form).filter(([, fields]) => fields.length > 0).map(([title, fields]) =>
      html("fieldset", {}, html("legend", {}, title), ...fields.map((field) => this.field(field))));
    this.fields.replaceChildren(...groups);
    for (const [name, value] of entered) {
      const input = this.inputs.get(name);
      if (input) this.set(name, input, value);
    }
  }

  /**
   * @param {Field} field
   * @returns {HTMLElement}
   */
  field(field) {
    const attributes = { name: field.name, autocomplete: "off", spellcheck: "false", placeholder: field.hint };
    const created = field.type === "area" ? html("textarea", { ...attributes, rows: 4 })
      : field.type === "choice" ? html("select", attributes, ...(field.choices ?? []).map((choice) => html("option", { value: choice }, choice || "default")))
        : html("input", { ...attributes, type: "text", inputmode: field.type === "number" ? "numeric" : undefined });
    const input = /** @type {HTMLInputElement | HTMLSelectElement | HTMLTextAreaElement} */ (created);
    input.value = field.value;
    this.inputs.set(field.name, input);
    this.before.set(field.name, field.value);
    const label = html("label", {}, html("span", {}, field.label), input);
    if (!field.range) return label;
    const [min, max, step] = field.range;
    const slider = /** @type {HTMLInputElement} */ (html("input", { type: "range", min, max, step, "aria-label": `${field.label}, slider` }));
    slider.value = field.value || String(min);
    slider.addEventListener("input", () => { input.value = slider.value; });
    input.addEventListener("input", () => { slider.value = input.value; });
    return html("div", { class: "slid" }, label, slider);
  }

  /**
   * @param {string} name
   * @param {HTMLInputElement | HTMLSelectElement | HTMLTextAreaElement} input
   * @param {string} value
   */
  set(name, input, value) {
    input.value = value;
    input.dispatchEvent(new Event("input"));
  }

  /**
   * Shows an error, at the field that it names.
   * @param {string} message
   * @param {string | null} field
   */
  fail(message, field) {
    for (const [name, input] of this.inputs) {
      const bad = name === field;
      if (bad) {
        input.setAttribute("aria-invalid", "true");
        input.setAttribute("aria-describedby", "whatif-error");
        input.focus();
      } else {
        input.removeAttribute("aria-invalid");
        input.removeAttribute("aria-describedby");
      }
    }
    this.error.hidden = message === "";
    this.error.className = message ? "failure" : "";
    this.error.replaceChildren(html("span", {}, field ? `${field}: ${message}` : message));
  }

  /**
   * Stops a simulation. The server stops it when the connection closes.
   * @param {string} text
   */
  stop(text) {
    this.running?.abort();
    this.running = undefined;
    this.cancel.hidden = true;
    this.status.textContent = text;
  }

  async ask() {
    this.stop("Simulating …");
    this.fail("", null);
    const running = new AbortController();
    this.running = running;
    this.cancel.hidden = false;
    const after = new Map([...this.inputs].map(([name, input]) => [name, input.value]));
    const path = this.key.split("/").map(encodeURIComponent).join("/");
    try {
      const response = await fetch(`hpas/${path}/whatif?${queryOf(this.before, after, this.hours.value)}`, { signal: running.signal });
      const text = await response.text();
      if (this.running !== running) return;
      if (response.ok) this.show(JSON.parse(text));
      else if (response.headers.get("content-type")?.startsWith("application/json")) {
        const error = JSON.parse(text);
        this.fail(error.message, error.field);
      } else this.fail(response.status === 431 ? "the fields are too long: the limit is 16 KiB" : text, null);
      this.stop(response.ok ? "Simulated." : "");
    } catch (error) {
      if (this.running !== running) return;
      this.fail(`the server of this page does not respond: ${error}`, null);
      this.stop("");
    }
  }

  /** @param {Answer} answer */
  show(answer) {
    this.drawing.update(answer.drawing);
    const cell = (/** @type {string | null} */ text) => html("td", {}, text ?? "unknown");
    const table = html("div", { class: "wide", tabindex: 0, role: "group", "aria-label": "Scores" }, html("table", {},
      html("thead", {}, html("tr", {}, html("th", { scope: "col" }, "run"),
        ...answer.heads.map(([title, meaning]) => html("th", { scope: "col", title: meaning }, title)))),
      html("tbody", {}, ...answer.rows.map((row) => html("tr", {}, html("th", { scope: "row" }, row.name), ...row.cells.map(cell))))));
    const loads = html("ul", { class: "notes", "aria-label": "Loads" }, ...answer.loads.map((load) => html("li", {},
      `The load of ${load.metric} comes from ${load.origin}.`,
      load.problem ? ` Prometheus is not used: ${load.problem}.` : "")));
    const parts = [html("p", { class: "sentence" }, `${answer.sentence}.`), table, this.drawing.element, loads];
    if (answer.command) parts.push(html("h4", {}, "Change it"), this.copied(answer.command), lined(answer.diff));
    else parts.push(html("p", {}, "No field is changed."));
    parts.push(html("ul", { class: "notes" }, ...answer.notes.map((note) => html("li", {}, note))));
    this.result.replaceChildren(...parts);
  }

  /** @param {string} command */
  copied(command) {
    const button = html("button", { type: "button" }, "Copy");
    button.addEventListener("click", () => {
      navigator.clipboard.writeText(command).then(() => { button.textContent = "Copied"; }, () => { button.textContent = "Select and copy it"; });
    });
    return html("div", { class: "command" }, html("pre", { tabindex: 0 }, command), button);
  }
}

/**
 * The lines of a difference. A sign starts each line, so that colours are not needed to read it.
 * @param {string} diff
 */
function lined(diff) {
  const lines = diff.split("\n").filter(Boolean).map((line) => {
    const kind = line.startsWith("+") ? "added" : line.startsWith("-") ? "removed" : "";
    return html("span", { class: `line ${kind}` }, line);
  });
  return html("pre", { class: "diff", tabindex: 0 }, ...lines);
}
