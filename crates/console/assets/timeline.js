// Drawings over time: the server draws the panels, and this script shows the decision at a moment, by pointer and by
// keyboard. The texts of a decision reach the page through dom.js only.

import { html, svg } from "./dom.js";

/**
 * @typedef {{label: string, unit: string, ink: string, panel: number, count: number, after?: number[],
 *   values: (number | null)[]}} Column
 * @typedef {[number, [number, ...number[]][]]} Step
 * @typedef {{start: number, period: number, length: number, samples: number, columns: Column[],
 *   decisions: [number, number, Step[]][], events: [number, boolean, number][],
 *   happenings: [number, number, number][], variants?: number[]}} Course
 * @typedef {{texts: string[], courses: Course[]}} Data
 * @typedef {{markup: string, data: Data}} Drawing
 */

/** The pixels around the pointer in which a rescale is found. */
const REACH = 4;

/** The classes of the pieces of a step, by their role. */
const ROLES = ["", "strong", "good", "warn", "bad", "dim"];

/**
 * Every value of a column. A column with few changes lists only the changes.
 * @param {Column} column
 * @returns {(number | null | undefined)[]}
 */
export function expand(column) {
  if (column.after) {
    /** @type {(number | null)[]} */
    const all = [];
    column.after.forEach((after, index) => {
      // The previous value holds until this change.
      for (let left = after; index > 0 && left > 0; left -= 1) all.push(column.values[index - 1] ?? null);
    });
    while (all.length < column.count) all.push(column.values.at(-1) ?? null);
    delete column.after;
    column.values = all;
  }
  return column.values;
}

/**
 * The index of the last entry that starts at or before `second`, or -1.
 * @param {[number, ...unknown[]][]} entries
 * @param {number} second
 */
export function lastBefore(entries, second) {
  let [low, high] = [0, entries.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((entries[middle]?.[0] ?? Infinity) <= second) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

/**
 * A time of day in UTC, with the date unless the drawing ends on this date.
 * @param {Course} course
 * @param {number} second
 */
export function clock(course, second) {
  const at = new Date((course.start + second) * 1000);
  const end = new Date((course.start + course.length) * 1000);
  const text = Number.isNaN(at.getTime()) ? "" : at.toISOString();
  const day = text.slice(0, 10) === end.toISOString().slice(0, 10) ? "" : `${text.slice(0, 10)} `;
  return `${day}${text.slice(11, 19)} UTC`;
}

/**
 * The nearest sample at which the first column, the desired count, changes, or the sample itself if none is in reach.
 * In a drawing of a day, a pixel is longer than a sync, so a pointer could otherwise miss a rescale.
 * @param {Course} course
 * @param {number} sample
 * @param {number} reach
 */
export function rescaleNear(course, sample, reach) {
  const [desired] = course.columns;
  if (!desired) return sample;
  const values = expand(desired);
  const changes = (/** @type {number} */ at) => at > 0 && at < values.length && values[at] !== values[at - 1];
  for (let away = 0; away <= reach; away += 1) {
    if (changes(sample + away)) return sample + away;
    if (changes(sample - away)) return sample - away;
  }
  return sample;
}

export class Timeline {
  /** @param {string} name what the drawing shows */
  constructor(name) {
    this.panels = html("div", { class: "panels" });
    this.moment = html("div", { class: "moment", role: "region", "aria-label": `Moment of ${name}`, tabindex: 0, hidden: true });
    this.say = html("p", { class: "hidden", role: "status" });
    this.hint = html("p", { class: "hint" }, "Point at the drawing, or focus it and press the arrow keys, to see the decision. Click or Enter keeps it.");
    this.element = html("div", { class: "timeline" }, this.panels, html("div", { class: "aside" }, this.hint, this.moment), this.say);
    /** @type {Data} */
    this.data = { texts: [], courses: [] };
    /** The chart and the time of the shown moment. @type {{chart: number, at: number} | undefined} */
    this.now = undefined;
    this.pinned = false;
  }

  /**
   * Draws. A pinned moment stays.
   * @param {Drawing | null | undefined} drawing
   */
  update(drawing) {
    this.element.hidden = !drawing;
    if (!drawing) {
      this.data = { texts: [], courses: [] };
      this.panels.replaceChildren();
      this.hide();
      return;
    }
    const focused = document.activeElement instanceof HTMLElement && this.panels.contains(document.activeElement)
      ? document.activeElement.dataset.course : undefined;
    this.data = drawing.data;
    // The server escapes its texts. A parsed document runs no scripts.
    const parsed = new DOMParser().parseFromString(drawing.markup, "text/html").body.firstElementChild;
    this.panels.replaceChildren(...(parsed ? [document.adoptNode(parsed)] : []));
    for (const element of this.panels.querySelectorAll(".course")) {
      if (element instanceof HTMLElement) this.listen(element);
    }
    const again = focused === undefined ? null : this.panels.querySelector(`[data-course="${Number(focused)}"]`);
    if (again instanceof HTMLElement) again.focus({ preventScroll: true });
    const { now } = this;
    const element = now ? this.panels.querySelector(`[data-course="${now.chart}"]`) : null;
    const course = now ? this.data.courses[now.chart] : undefined;
    if (now && course && element instanceof HTMLElement && this.pinned) {
      this.show(element, Math.round((now.at - course.start) / course.period), false);
    } else {
      this.hide();
    }
  }

  /** @param {HTMLElement} element */
  listen(element) {
    const course = this.course(element);
    if (!course) return;
    const sampleAt = (/** @type {number} */ x) => {
      const plot = element.querySelector(".plot")?.getBoundingClientRect();
      if (!plot || x < plot.left - 4 || x > plot.right + 4) return undefined;
      const sample = Math.floor((((x - plot.left) / plot.width) * course.length) / course.period);
      return rescaleNear(course, sample, Math.floor((REACH * course.samples) / Math.max(1, plot.width)));
    };
    const move = (/** @type {PointerEvent | MouseEvent} */ event) => {
      if (this.pinned) return;
      const sample = sampleAt(event.clientX);
      if (sample === undefined) this.hide();
      else this.show(element, sample, false);
    };
    element.addEventListener("pointermove", move);
    element.addEventListener("click", (event) => {
      const sample = sampleAt(event.clientX);
      if (sample === undefined) return;
      this.pinned = false;
      this.show(element, sample, true);
      this.pin(true);
    });
    element.addEventListener("keydown", (event) => this.key(event, element, course));
  }

  /**
   * @param {KeyboardEvent} event
   * @param {HTMLElement} element
   * @param {Course} course
   */
  key(event, element, course) {
    const chart = Number(element.dataset.course);
    const here = this.now && this.now.chart === chart ? this.now : undefined;
    const sample = here ? Math.round((here.at - course.start) / course.period) : course.samples - 1;
    const far = Math.max(1, Math.round(course.samples / 48));
    const decision = lastBefore(course.decisions, (sample + 1) * course.period - 0.001);
    const toSample = (/** @type {number} */ index) => {
      const entry = course.decisions[index];
      return entry ? Math.floor(entry[0] / course.period) : sample;
    };
    const before = toSample(decision) < sample ? decision : decision - 1;
    const step = event.shiftKey ? far : 1;
    const next = {
      ArrowLeft: () => sample - step,
      ArrowRight: () => sample + step,
      PageUp: () => toSample(before),
      PageDown: () => toSample(decision + 1),
      Home: () => 0,
      End: () => course.samples - 1,
    }[event.key];
    if (next) {
      event.preventDefault();
      this.pinned = false;
      this.show(element, here ? next() : sample, true);
      this.pin(true);
    } else if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      if (!this.now) this.show(element, sample, true);
      this.pin(!this.pinned);
    } else if (event.key === "Escape" && this.now) {
      event.preventDefault();
      event.stopPropagation();
      this.hide();
    }
  }

  /** @param {HTMLElement} element */
  course(element) {
    return this.data.courses[Number(element.dataset.course)];
  }

  /** @param {boolean} value */
  pin(value) {
    this.pinned = value;
    this.element.classList.toggle("kept", value);
  }

  hide() {
    this.pin(false);
    this.now = undefined;
    this.moment.hidden = true;
    this.hint.hidden = this.data.courses.length === 0;
    for (const mark of this.panels.querySelectorAll(".cross, .dot")) mark.remove();
  }

  /**
   * Shows a sample, with a line through all panels.
   * @param {HTMLElement} element
   * @param {number} wanted
   * @param {boolean} aloud
   */
  show(element, wanted, aloud) {
    const course = this.course(element);
    if (!course) return;
    const sample = Math.max(0, Math.min(course.samples - 1, wanted));
    const second = sample * course.period;
    this.now = { chart: Number(element.dataset.course), at: course.start + second };
    this.moment.replaceChildren(...this.explain(course, sample));
    this.moment.hidden = false;
    this.hint.hidden = true;
    this.cross(element, course, sample);
    if (aloud) {
      const counts = course.columns.slice(0, 2).map((column) => `${expand(column)[sample] ?? "unknown"} ${column.label}`);
      const sentence = this.moment.querySelector(".sentence")?.textContent ?? "";
      this.say.replaceChildren(html("span", {}, `${clock(course, second)}: ${counts.join(", ")}. ${sentence}`));
    }
  }

  /** @param {number} index */
  text(index) {
    return this.data.texts[index] ?? "";
  }

  /**
   * The decision in force in the sync that starts at `second`.
   * @param {Course} course
   * @param {number} second
   */
  decisionAt(course, second) {
    return course.decisions[lastBefore(course.decisions, second + course.period - 0.001)];
  }

  /**
   * The content of the moment: values, what happened, and the decision with its steps.
   * @param {Course} course
   * @param {number} sample
   * @returns {HTMLElement[]}
   */
  explain(course, sample) {
    const second = sample * course.period;
    const made = course.variants ? undefined : this.decisionAt(course, second);
    const parts = [html("h4", {}, clock(course, Math.max(second, made?.[0] ?? 0)))];
    const values = course.columns.map((column) => {
      const value = expand(column)[sample];
      const shape = column.ink === "running" ? { class: "f-running", d: "M0 0h10v10h-10z" } : { class: `s-${column.ink}`, d: "M0 5h10" };
      const shown = value === null || value === undefined ? "unknown" : `${value}${column.unit ? ` ${column.unit}` : ""}`;
      return html("li", {}, svg("svg", { class: "key", width: 10, height: 10, "aria-hidden": "true" }, svg("path", shape)),
        `${column.label} `, html("b", {}, shown));
    });
    parts.push(html("ul", { class: "values" }, ...values));
    for (const [from, to, what] of course.happenings) {
      if (from < second + course.period && second < Math.max(to, from + course.period)) parts.push(html("p", { class: "mark" }, this.text(what)));
    }
    for (const [at, warning, what] of course.events) {
      if (at >= second && at < second + course.period) parts.push(html("p", { class: warning ? "mark warned" : "mark" }, this.text(what)));
    }
    if (course.variants) {
      course.variants.forEach((index, variant) => {
        const other = this.data.courses[index];
        const decided = other && this.decisionAt(other, second);
        parts.push(html("h5", {}, course.columns[variant]?.label ?? ""),
          html("p", {}, decided ? this.text(decided[1]) : "no decision is known"));
      });
      return parts;
    }
    const decision = this.decisionAt(course, second);
    if (!decision) {
      parts.push(html("p", { class: "dim" }, "No decision is known at this time. The counts come from events and from what the console has seen."));
      return parts;
    }
    const [at, sentence, steps] = decision;
    parts.push(html("p", { class: "sentence" }, this.text(sentence)));
    if (at < second) parts.push(html("p", { class: "dim" }, `decided at ${clock(course, at)}; the syncs since then took the same steps`));
    for (const [title, lines] of steps) {
      const rows = lines.flatMap(([label, ...pieces]) => {
        const spans = [];
        for (let piece = 0; piece < pieces.length; piece += 2) {
          spans.push(html("span", { class: ROLES[pieces[piece] ?? 0] ?? "" }, this.text(pieces[piece + 1] ?? -1)));
        }
        return [html("dt", {}, this.text(label)), html("dd", {}, ...spans)];
      });
      parts.push(html("h5", {}, this.text(title)), html("dl", {}, ...rows));
    }
    return parts;
  }

  /**
   * The line through all panels, and a dot on each curve.
   * @param {HTMLElement} element
   * @param {Course} course
   * @param {number} sample
   */
  cross(element, course, sample) {
    for (const mark of this.panels.querySelectorAll(".cross, .dot")) mark.remove();
    const second = Math.min((sample + 0.5) * course.period, course.length);
    for (const other of this.panels.querySelectorAll(".course")) {
      const shown = other instanceof HTMLElement ? this.course(other) : undefined;
      if (!shown || second > shown.length) continue;
      const x = `${(second / shown.length) * 100}%`;
      other.querySelectorAll(".plot").forEach((plot, panel) => {
        plot.append(svg("line", { class: "cross", x1: x, x2: x, y1: 0, y2: "100%" }));
        if (other !== element || !(plot instanceof SVGElement)) return;
        const [bottom, top] = [Number(plot.dataset.bottom), Number(plot.dataset.top)];
        for (const column of course.columns) {
          const value = column.panel === panel && column.ink !== "running" ? expand(column)[sample] : null;
          if (value === null || value === undefined || value > top) continue;
          plot.append(svg("circle", { class: `dot ${column.ink}`, cx: x, cy: `${(1 - (value - bottom) / (top - bottom)) * 100}%`, r: 3.5 }));
        }
      });
    }
  }
}
