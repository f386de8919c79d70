// The page of the controller: replicas, lateness, requests, breakers, sources, watches, takeover, handover, parity.
// A part that cannot be read is listed with the reason and advice.

import { html, plain } from "./dom.js";
import { age, writeView } from "./view.js";

/**
 * @typedef {{part: string, reason: string, advice: string}} Missing
 * @typedef {{namespace: string, name: string, holder: string, acquired: string | null, renewed: string | null,
 *   transitions: number | null, seconds: number}} Lease
 * @typedef {{pod: string, node: string, leads: boolean, shadow: boolean, phase: string, ready: boolean,
 *   restarts: number, started: string | null, image: string}} Replica
 * @typedef {{count: number, sum: number, inTime: number, p99: number | null}} Lateness
 * @typedef {{verb: string, resource: string, count: number, failed: Record<string, number>}} Requests
 * @typedef {{
 *   version: string | null, started: number | null, memoryBytes: number | null, cpuSeconds: number | null,
 *   hpas: number | null, syncs: Record<string, number>, failures: Record<string, number>, lateness: Lateness | null,
 *   queueDepth: number | null, longestSyncSeconds: number | null, requests: Requests[],
 *   breakers: Record<string, boolean>, sources: Record<string, {down: boolean | null, errors: Record<string, number>}>,
 *   watches: Record<string, {objects: number | null, ageSeconds: number | null, restarts: Record<string, number>}>,
 *   leads: Record<string, boolean>, takeover: string | null, foreignWrites: number | null,
 *   handover: Record<string, number>, clockSkewSeconds: number | null, eventsDropped: Record<string, number>,
 * }} Numbers
 * @typedef {{same: number, different: number, onlyConcertina: number, onlyBuiltin: number, unknown: number}} Counts
 * @typedef {{since: string | null, lastSign: string | null, hpas: number, total: Counts, namespaces: Record<string, Counts>,
 *   differences: {at: string | null, namespace: string, name: string, result: string, builtin: number | null,
 *   ours: number | null, sentence: string}[]}} Parity
 * @typedef {{scope: string, controller: string | null, leads: boolean | null,
 *   guard: {kind: string, state: string, reason: string | null, since: string | null} | null,
 *   namespaces: Record<string, {states: Record<string, number>, lastForeignWrite: {manager: string, at: string | null} | null}>}} Handover
 * @typedef {{lease: Lease | null, replicas: Replica[], from: string | null, numbers: Numbers | null, parity: Parity | null,
 *   handover: Handover | null, missing: Missing[]}} State
 * @typedef {{seconds: number, syncs: number, late: number, requests: number, failed: number, cpu: number}} Rates
 * @typedef {{at: number, syncs: number, late: number, requests: number, failed: number, cpu: number}} Totals
 */

/** The minimum time between two readings, in milliseconds. */
const INTERVAL = 10_000;
/** Maximum number of rows of a table. Further rows are only counted. */
const ROWS = 40;

/** @param {Record<string, number>} counts */
const sum = (counts) => Object.values(counts).reduce((sum, count) => sum + count, 0);

/**
 * The totals of a reading, for the difference to the next one.
 * @param {Numbers} numbers
 * @param {number} at
 * @returns {Totals}
 */
export function totals(numbers, at) {
  return {
    at,
    syncs: numbers.lateness?.count ?? 0,
    late: (numbers.lateness?.count ?? 0) - (numbers.lateness?.inTime ?? 0),
    requests: numbers.requests.reduce((sum, row) => sum + row.count, 0),
    failed: numbers.requests.reduce((total, row) => total + sum(row.failed), 0),
    cpu: numbers.cpuSeconds ?? 0,
  };
}

/**
 * The changes per second between two readings. `null` before the second one, and after a restart of the controller.
 * @param {Totals | null} before
 * @param {Totals} after
 * @returns {Rates | null}
 */
export function rates(before, after) {
  const seconds = before ? (after.at - before.at) / 1000 : 0;
  if (!before || seconds <= 0 || after.requests < before.requests || after.syncs < before.syncs) return null;
  const per = (/** @type {"syncs" | "late" | "requests" | "failed" | "cpu"} */ name) => (after[name] - before[name]) / seconds;
  return { seconds, syncs: per("syncs"), late: per("late"), requests: per("requests"), failed: per("failed"), cpu: per("cpu") };
}

/**
 * A share in percent, rounded down, so only a full share is 100 %.
 * @param {number} part
 * @param {number} whole
 */
export function percent(part, whole) {
  if (whole <= 0) return "";
  const share = Math.floor((part / whole) * 10_000) / 100;
  return `${share} %`;
}

/**
 * The requests in order: most failures first, then most requests.
 * @param {Requests[]} requests
 */
export function ordered(requests) {
  return [...requests].sort((a, b) => sum(b.failed) - sum(a.failed) || b.count - a.count);
}

export class ControllerPage {
  /** @param {() => number} now */
  constructor(now) {
    this.now = now;
    this.started = 0;
    this.running = false;
    /** @type {State | undefined} */
    this.state = undefined;
    this.readAt = 0;
    /** @type {Totals | null} */
    this.before = null;
    /** @type {Rates | null} */
    this.rates = null;
    this.back = html("a", { class: "back" }, "← All HPAs");
    this.heading = html("h2", { tabindex: -1 }, "Controller");
    this.answer = html("div", { class: "answer" }, html("p", {}, "Reading the controller …"));
    this.note = html("p", { class: "quiet", role: "status" });
    this.element = html("section", { class: "one controller", "aria-label": "Controller" },
      this.back, this.heading, this.note, this.answer);
  }

  /**
   * Shows the page, and reads the state again unless the last reading is too recent.
   * @param {import("./view.js").View} view
   */
  update(view) {
    this.back.setAttribute("href", writeView({ ...view, page: "" }));
    if (this.running || this.now() - this.started < INTERVAL) return;
    this.running = true;
    this.started = this.now();
    fetch("controller")
      .then(async (response) => {
        if (!response.ok) throw new Error(await response.text());
        this.take(await response.json());
      })
      .catch((error) => {
        const text = `The state of the controller cannot be read: ${error instanceof Error ? error.message : error}`;
        if (this.state) this.note.textContent = plain(`${text}. This view is ${age(this.readAt, this.now())} old.`);
        else this.answer.replaceChildren(html("p", { class: "failure" }, text));
      })
      .then(() => {
        this.running = false;
      });
  }

  /** @param {State} state */
  take(state) {
    const now = this.now();
    if (state.numbers) {
      const current = totals(state.numbers, now);
      this.rates = rates(this.before, current);
      this.before = current;
    }
    this.state = state;
    this.readAt = now;
    this.note.textContent = "";
    const open = document.activeElement?.closest("[data-part]");
    const focused = open instanceof HTMLElement ? open.dataset.part : undefined;
    this.answer.replaceChildren(...parts(state, this.rates, now));
    const again = focused && this.answer.querySelector(`[data-part="${focused}"]`);
    if (again instanceof HTMLElement) again.focus({ preventScroll: true });
  }
}

/**
 * @param {State} state
 * @param {Rates | null} rates
 * @param {number} now
 * @returns {HTMLElement[]}
 */
function parts(state, rates, now) {
  const { numbers } = state;
  return [
    state.missing.length > 0 && missing(state.missing),
    (state.lease || state.replicas.length > 0) && replicas(state, now),
    numbers && timing(numbers, state.from, rates, now),
    numbers && requests(numbers),
    numbers && upstream(numbers),
    (numbers?.takeover || state.handover) && handover(state, now),
    state.parity && parity(state.parity, now),
  ].filter((part) => part instanceof HTMLElement);
}

/**
 * @param {string} title
 * @param {...import("./dom.js").Child} children
 */
const section = (title, ...children) => html("section", {}, html("h3", {}, title), ...children);

/**
 * @param {string} name the table's name for a screen reader
 * @param {string[]} heads
 * @param {(import("./dom.js").Child)[][]} rows
 */
function table(name, heads, rows) {
  const more = rows.length - ROWS;
  return html("div", { class: "wide", tabindex: 0, role: "group", "aria-label": name, "data-part": name },
    html("table", {},
      html("thead", {}, html("tr", {}, ...heads.map((head) => html("th", { scope: "col" }, head)))),
      html("tbody", {}, ...rows.slice(0, ROWS).map((row) => html("tr", {}, ...row.map((cell) => html("td", {}, cell)))))),
    more > 0 && html("p", {}, `and ${more} more`));
}

/**
 * A list of terms. A term without a value is left out.
 * @param {[string, import("./dom.js").Child][]} terms
 */
function facts(terms) {
  const shown = terms.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return html("div", { class: "facts" },
    html("dl", {}, ...shown.map(([name, value]) => html("div", {}, html("dt", {}, name), html("dd", {}, value)))));
}

/** @param {Record<string, number>} counts */
const listed = (counts) => Object.entries(counts).map(([name, count]) => `${name}: ${count}`).join(", ");

/** @param {boolean} good @param {string} text */
const state = (good, text) => html("b", { class: `chip ${good ? "fine" : "unable"}` }, text);

/** @param {string | null | undefined} time @param {number} now */
const ago = (time, now) => (time ? `${age(Date.parse(time), now)} ago` : "");

/** @param {Missing[]} missing */
function missing(missing) {
  return section("Not readable", html("ul", { class: "findings" }, ...missing.map((it) =>
    html("li", { class: "warning" }, html("b", {}, it.part), html("p", {}, it.reason),
      it.advice && html("p", { class: "advice" }, it.advice)))));
}

/** @param {State} it @param {number} now */
function replicas(it, now) {
  const { lease } = it;
  const expired = lease?.renewed && now - Date.parse(lease.renewed) > lease.seconds * 1000;
  const role = (/** @type {Replica} */ replica) =>
    replica.leads ? "leader" : replica.shadow ? "dry run" : lease?.holder ? "standby" : "replica";
  const rows = it.replicas.map((replica) => [
    replica.pod, role(replica), state(replica.ready, replica.ready ? "ready" : replica.phase === "Running" ? "not ready" : replica.phase || "unknown"),
    replica.restarts, ago(replica.started, now), replica.node, replica.image,
  ]);
  return section("Replicas",
    lease && facts([
      ["Leader", lease.holder || "none"],
      ["Leader for", lease.holder && lease.acquired ? age(Date.parse(lease.acquired), now) : null],
      ["Lease", `${lease.namespace}/${lease.name}`],
      ["Renewed", expired ? state(false, ago(lease.renewed, now)) : ago(lease.renewed, now)],
      ["Changes of the leader", lease.transitions],
    ]),
    rows.length > 0 && table("Replicas", ["Pod", "Role", "State", "Restarts", "Started", "Node", "Image"], rows));
}

/**
 * @param {Numbers} it
 * @param {string | null} from
 * @param {Rates | null} rates
 * @param {number} now
 */
function timing(it, from, rates, now) {
  const late = it.lateness;
  const inTime = late && late.count > 0 ? percent(late.inTime, late.count) : null;
  const rate = (/** @type {number} */ value) => (value >= 10 ? value.toFixed(0) : value.toFixed(1));
  return section("Syncs", facts([
    ["From", from],
    ["Version", it.version],
    ["Running for", it.started ? age(it.started * 1000, now) : null],
    ["HPAs", it.hpas],
    ["Syncs", sum(it.syncs)],
    ["Started within 1 s", inTime && (late && late.inTime / late.count < 0.999 ? state(false, inTime) : inTime)],
    ["99 % started within", late && late.count > 0 ? (late.p99 === null ? "more than all bounds" : `${late.p99} s`) : null],
    ["Waiting for a worker", it.queueDepth],
    ["Longest sync in flight", it.longestSyncSeconds === null ? null : `${it.longestSyncSeconds.toFixed(1)} s`],
    [`In the last ${rates ? Math.round(rates.seconds) : 0} s`, rates && `${rate(rates.syncs)} syncs/s, ${rate(rates.late)} late, ${rate(rates.cpu * 1000)} ms CPU/s`],
    ["Failed metrics and writes", listed(it.failures)],
    ["Memory", it.memoryBytes ? `${Math.round(it.memoryBytes / 1e6)} MB` : null],
    ["Clock of the API server", it.clockSkewSeconds ? `${Math.abs(it.clockSkewSeconds)} s ${it.clockSkewSeconds > 0 ? "ahead" : "behind"}` : null],
  ]));
}

/** @param {Numbers} it */
function requests(it) {
  const failed = it.requests.reduce((total, row) => total + sum(row.failed), 0);
  const count = it.requests.reduce((total, row) => total + row.count, 0);
  const rows = ordered(it.requests).map((row) => [row.resource, row.verb, row.count,
    sum(row.failed) > 0 ? html("span", { class: "above" }, listed(row.failed)) : "none"]);
  return section("Requests", html("p", {}, `${count} requests, ${failed} without success.`),
    table("Requests", ["Resource", "Verb", "Requests", "Failed, by code"], rows));
}

/** @param {Numbers} it */
function upstream(it) {
  const breakers = Object.entries(it.breakers).map(([api, down]) => [api, state(!down, down ? "down" : "up"), ""]);
  const sources = Object.entries(it.sources).map(([name, source]) =>
    [name, source.down === null ? "" : state(!source.down, source.down ? "down" : "up"), listed(source.errors)]);
  const watches = Object.entries(it.watches).map(([resource, watch]) => {
    const seconds = watch.ageSeconds;
    const text = seconds === null ? "" : `${Math.round(seconds)} s`;
    return [resource, watch.objects, seconds !== null && seconds > 300 ? state(false, text) : text, listed(watch.restarts)];
  });
  return section("Metrics APIs, sources and watches",
    breakers.length + sources.length > 0
      ? table("Metrics APIs and sources", ["Metrics API or source", "State", "Reads without a number"], [...breakers, ...sources])
      : html("p", {}, "No metrics API or source has failed as a whole."),
    table("Watches", ["Watch", "Objects", "Last event", "Restarts"], watches));
}

/** @param {State} it @param {number} now */
function handover(it, now) {
  const { numbers } = it;
  const view = it.handover;
  const rows = Object.entries(view?.namespaces ?? {}).map(([namespace, row]) => {
    const write = row.lastForeignWrite;
    const others = Object.keys(row.states).some((name) => name !== "in_charge");
    return [namespace, state(!others, listed(row.states)), write ? `${write.manager} ${ago(write.at, now)}` : "none"];
  });
  const guard = view?.guard;
  return section("Takeover and handover",
    facts([
      ["Takeover", numbers?.takeover && (numbers.takeover === "holding" ? state(false, "holding") : numbers.takeover)],
      ["Foreign writes", numbers?.foreignWrites],
      ["Scope", view?.scope],
      ["Instance", view?.controller],
      ["Guard", guard && state(guard.state !== "broken", [guard.kind, guard.state].filter(Boolean).join(", "))],
      ["Reason", guard?.reason],
    ]),
    view?.scope === "labelled" && (rows.length > 0
      ? table("Handover", ["Namespace", "HPAs in scope", "Last foreign write"], rows)
      : html("p", {}, "No HPA is in scope by a label.")));
}

/** @param {Parity} it @param {number} now */
function parity(it, now) {
  const counts = (/** @type {Counts} */ counts) => [counts.same, counts.different, counts.onlyConcertina, counts.onlyBuiltin, counts.unknown];
  const heads = ["Same", "Different", "Only Concertina", "Only the other", "Inconclusive"];
  const rows = Object.entries(it.namespaces).map(([namespace, row]) => [namespace, ...counts(row)]);
  const differences = it.differences.map((row) =>
    [ago(row.at, now), `${row.namespace}/${row.name}`, row.builtin ?? "none", row.ours ?? "none", row.sentence]);
  return section("Comparison of the dry run",
    facts([
      ["Since", ago(it.since, now)],
      ["HPAs", it.hpas],
      ["Last write of the other controller", ago(it.lastSign, now) || "none"],
    ]),
    table("Changes by namespace", ["Namespace", ...heads], [["all", ...counts(it.total)], ...rows]),
    differences.length > 0
      ? table("Differences", ["Time", "HPA", "Other controller", "Concertina", "Decision of Concertina"], differences)
      : html("p", {}, "No difference is recorded."));
}
