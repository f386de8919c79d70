// The views as values: the address, filters, order and texts. Nothing here reads the page or the clock.

/**
 * @typedef {{at: string, replicas: number}} Count
 * @typedef {{name: string, value: string | null, target: string | null, ratio: number | null}} Metric
 * @typedef {{
 *   namespace: string, name: string, labels: Record<string, string>, target: string,
 *   min: number, max: number, current: number, desired: number, metrics: Metric[],
 *   state: string, reason: string, since: string | null, scaled: string | null, policy: string | null,
 *   decision: string | null, decided: string | null,
 *   writers: string[], history: Count[], advice?: {text: string, rank: number | null},
 * }} Row
 * @typedef {{q: string, state: string, namespace: string, label: string, advice: string, hpa: string, page: string}} View
 */

/** The states, the most severe first, each with its name. */
export const STATES = new Map([
  ["unable", "cannot scale"],
  ["maximum", "at maximum"],
  ["flapping", "flapping"],
  ["late", "late"],
  ["contested", "contested"],
  ["policy", "policy"],
  ["held", "held back"],
  ["paused", "paused"],
  ["undecided", "undecided"],
  ["fine", "fine"],
]);

const ORDER = new Map([...STATES.keys()].map((state, index) => [state, index]));

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;

/** @type {(keyof View)[]} */
const FIELDS = ["q", "state", "namespace", "label", "advice", "hpa", "page"];

/**
 * Reads a view from the part of the address after `#`.
 * @param {string} hash
 * @returns {View}
 */
export function readView(hash) {
  const given = new URLSearchParams(hash.replace(/^#/, ""));
  const view = { q: "", state: "", namespace: "", label: "", advice: "", hpa: "", page: "" };
  for (const field of FIELDS) view[field] = given.get(field) ?? "";
  return view;
}

/**
 * Writes a view as the part of the address after `#`.
 * @param {View} view
 * @returns {string}
 */
export function writeView(view) {
  const given = new URLSearchParams();
  for (const field of FIELDS) if (view[field]) given.set(field, view[field]);
  return `#${given}`;
}

/**
 * The key of an HPA: a namespace has no slash.
 * @param {{namespace: string, name: string}} row
 */
export const keyOf = (row) => `${row.namespace}/${row.name}`;

/**
 * Compares rows: the most severe state first, then by namespace and name.
 * @param {Row} a
 * @param {Row} b
 */
export function compare(a, b) {
  const severity = (ORDER.get(a.state) ?? 99) - (ORDER.get(b.state) ?? 99);
  if (severity !== 0) return severity;
  const [one, other] = [keyOf(a), keyOf(b)];
  return one < other ? -1 : one > other ? 1 : 0;
}

/**
 * Compares rows with advice: the most valuable advice first, and HPAs that have changed since last.
 * @param {Row} a
 * @param {Row} b
 */
function compareAdvice(a, b) {
  const rank = (/** @type {Row} */ row) => row.advice?.rank ?? Number.MAX_SAFE_INTEGER;
  return rank(a) - rank(b) || compare(a, b);
}

/**
 * Whether labels match `key`, or `key=value`, or several of these, separated by commas.
 * @param {Record<string, string>} labels
 * @param {string} selector
 */
export function selects(selector, labels) {
  return selector.split(",").every((part) => {
    const [key, value] = part.split("=").map((text) => text.trim());
    if (!key) return true;
    return Object.hasOwn(labels, key) && (value === undefined || labels[key] === value);
  });
}

/**
 * The rows that a view shows, in order.
 * @param {Iterable<Row>} rows
 * @param {View} view
 * @returns {Row[]}
 */
export function visible(rows, view) {
  const words = view.q.toLowerCase().split(/\s+/).filter(Boolean);
  const shown = [];
  for (const row of rows) {
    if (view.state && row.state !== view.state) continue;
    if (view.namespace && row.namespace !== view.namespace) continue;
    if (view.label && !selects(view.label, row.labels)) continue;
    if (view.advice && !row.advice) continue;
    const text = `${row.namespace} ${row.name} ${row.target} ${row.reason} ${row.policy ?? ""} ${row.decision ?? ""} ${row.advice?.text ?? ""}`.toLowerCase();
    if (!words.every((word) => text.includes(word))) continue;
    shown.push(row);
  }
  return shown.sort(view.advice ? compareAdvice : compare);
}

/**
 * The number of rows in each state.
 * @param {Iterable<Row>} rows
 * @returns {Map<string, number>}
 */
export function counts(rows) {
  const counts = new Map([...STATES.keys()].map((state) => [state, 0]));
  for (const row of rows) counts.set(row.state, (counts.get(row.state) ?? 0) + 1);
  return counts;
}

/**
 * The time between two instants in milliseconds, as `45 s`, `12 min`, `5 h`, `3 d`. A clock may be behind.
 * @param {number} from
 * @param {number} to
 */
export function age(from, to) {
  const seconds = Math.max(0, Math.round((to - from) / 1000));
  if (Number.isNaN(seconds)) return "";
  if (seconds < 120) return `${seconds} s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86400)} d`;
}

/**
 * The positions of the current and the desired count between minReplicas and maxReplicas, from 0 to 1.
 * @param {Row} row
 */
export function bar(row) {
  const at = (/** @type {number} */ count) =>
    row.max > row.min ? Math.min(1, Math.max(0, (count - row.min) / (row.max - row.min))) : count >= row.max ? 1 : 0;
  return { current: at(row.current), desired: at(row.desired) };
}

/**
 * The value of a metric with its target: `44 / 60 %`, `36.9 / 20 per pod`. A common unit is named once.
 * @param {Metric} metric
 */
export function measured(metric) {
  if (metric.target === null) return "invalid";
  if (metric.value === null) return `unknown / ${metric.target}`;
  const unit = [" %", " per pod"].find((unit) => metric.value?.endsWith(unit) && metric.target?.endsWith(unit)) ?? "";
  return `${metric.value.slice(0, metric.value.length - unit.length)} / ${metric.target}`;
}

/**
 * The points of a sparkline of `width` by `height`: steps of the counts from an hour ago until now, or from the
 * first count if it is later. The axis is at least a minute.
 * @param {Count[]} history
 * @param {number} now
 * @param {number} width
 * @param {number} height
 */
export function sparkline(history, now, width, height) {
  const [first] = history;
  if (!first) return "";
  const start = Math.max(now - HOUR, Math.min(now - MINUTE, Date.parse(first.at)));
  const highest = Math.max(1, ...history.map((count) => count.replicas));
  const x = (/** @type {number} */ at) => Math.min(width, Math.max(0, ((at - start) / (now - start)) * width));
  const y = (/** @type {number} */ replicas) => height - (replicas / highest) * height;
  /** @type {[number, number][]} */
  const points = [];
  /** @type {number | null} */
  let last = null;
  for (const { at, replicas } of history) {
    const left = x(Date.parse(at));
    const top = y(replicas);
    if (last !== null) points.push([left, last]);
    points.push([left, top]);
    last = top;
  }
  points.push([width, last ?? height]);
  return points.map(([left, top]) => `${left.toFixed(1)},${top.toFixed(1)}`).join(" ");
}

/** The states whose reason the decision does not give. */
const OWN_REASON = ["flapping", "late", "contested", "policy", "undecided"];

/**
 * The sentence of a row, and the time since which it holds: the last decision of the controller's record, or the reason
 * that the HPA states.
 * @param {Row} row
 * @returns {{text: string, since: string | null}}
 */
export function sentence(row) {
  if (row.decision && !OWN_REASON.includes(row.state)) return { text: row.decision, since: row.decided };
  return { text: row.reason, since: row.since ?? row.scaled };
}
