"use strict";
// The crosshair, the tip with the explanation of a sample, and the theme switch. The charts work without this script.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const tip = document.getElementById("tip");
  const say = document.getElementById("say");
  const ROLES = ["", "strong", "good", "warn", "bad", "dim"];
  const SVG = "http://www.w3.org/2000/svg";
  let pinned = false; // whether the tip stays when the pointer moves
  let now = null; // {element, course, sample}

  // Columns that list only changes are expanded once, on first use.
  const expand = (column) => {
    if (column.after) {
      const all = [];
      column.after.forEach((after, index) => {
        // The previous value holds until this change.
        while (index > 0 && after-- > 0) all.push(column.values[index - 1]);
      });
      while (all.length < column.count) all.push(column.values.at(-1));
      column.after = undefined;
      column.values = all;
    }
    return column.values;
  };

  const two = (number) => String(number).padStart(2, "0");
  const clock = (course, second) => {
    const at = new Date((course.start + second) * 1000);
    const time = `${two(at.getUTCHours())}:${two(at.getUTCMinutes())}:${two(at.getUTCSeconds())}`;
    return course.length > 86400 ? `${at.toISOString().slice(0, 10)} ${time}` : time;
  };
  const span = (seconds) => {
    const [h, min, s] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60, Math.round(seconds % 60)];
    const parts = [[h, "h"], [min, "min"], [s, "s"]].filter(([amount]) => amount > 0).slice(0, 2);
    return parts.length ? parts.map(([amount, unit]) => `${amount} ${unit}`).join(" ") : "0 s";
  };

  /** Index of the last entry that starts at or before `second`; -1 if there is none. */
  const lastBefore = (entries, second) => {
    let [low, high] = [0, entries.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (entries[middle][0] <= second) low = middle + 1;
      else high = middle;
    }
    return low - 1;
  };

  /** The decision in force at the end of the period that starts at `second`. */
  const decisionAt = (course, second) => course.decisions[lastBefore(course.decisions, second + course.period - 0.001)];

  /** The time to show for the period that starts at `second`: that of a decision in the period, or its start. */
  const moment = (course, second) => Math.max(second, (!course.variants && decisionAt(course, second)?.[0]) || 0);

  const make = (tag, text, className) => {
    const element = document.createElement(tag);
    if (text !== undefined) element.textContent = text;
    if (className) element.className = className;
    return element;
  };
  const draw = (parent, tag, attributes) => {
    const element = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    parent.append(element);
    return element;
  };

  /** The content of the tip for a sample. */
  const explain = (course, sample) => {
    const second = sample * course.period;
    const parts = [];
    const shown = moment(course, second);
    const title = make("h4", clock(course, shown));
    title.append(make("span", `after ${span(shown)}`));
    parts.push(title);
    const values = make("ul", undefined, "values");
    for (const column of course.columns) {
      const value = expand(column)[sample];
      const item = make("li");
      const key = draw(item, "svg", { class: "key", width: 10, height: 10, "aria-hidden": "true" });
      const shape = column.ink === "running" ? { class: "f-running", d: "M0 0h10v10h-10z" } : { class: `s-${column.ink}`, d: "M0 5h10" };
      draw(key, "path", shape);
      item.append(`${column.label} `, make("b", value === null || value === undefined ? "unknown" : `${value}${column.unit ? ` ${column.unit}` : ""}`));
      values.append(item);
    }
    parts.push(values);
    for (const [from, to, what] of course.happenings) {
      if (from <= second && second < Math.max(to, from + course.period)) parts.push(make("div", data.texts[what], "mark"));
    }
    for (const [at, warning, what] of course.events) {
      if (at >= second && at < second + course.period) parts.push(make("div", data.texts[what], warning ? "mark warned" : "mark"));
    }
    const decision = decisionAt(course, second);
    if (course.variants) {
      course.variants.forEach((index, variant) => {
        const decided = decisionAt(data.courses[index], second);
        parts.push(make("h5", course.columns[variant].label), make("div", decided ? data.texts[decided[1]] : "no decision yet"));
      });
    } else if (decision) {
      const [at, sentence, steps] = decision;
      parts.push(make("div", data.texts[sentence], "sentence"));
      if (at < second) parts.push(make("div", `decided at ${clock(course, at)}; the syncs since then took the same steps`, "when"));
      const list = make("dl");
      for (const [head, lines] of steps) {
        const title = make("dt", data.texts[head], "step");
        list.append(title);
        for (const [label, ...pieces] of lines) {
          const line = make("dd");
          for (let piece = 0; piece < pieces.length; piece += 2) {
            line.append(make("span", data.texts[pieces[piece + 1]], ROLES[pieces[piece]]));
          }
          // A single line without a label follows the title of its step.
          if (lines.length === 1 && !data.texts[label]) title.classList.add("short");
          else list.append(make("dt", data.texts[label]));
          list.append(line);
        }
      }
      parts.push(list);
    } else {
      parts.push(make("div", "no decision yet", "when"));
    }
    return parts;
  };

  /** Draws the crosshair through all charts of an HPA, and a dot on each curve of the active chart. */
  const cross = (element, course, sample) => {
    document.querySelectorAll(".cross, .dot").forEach((mark) => mark.remove());
    const second = Math.min((sample + 0.5) * course.period, course.length);
    for (const other of element.closest(".hpa").querySelectorAll(".course")) {
      const { length } = data.courses[other.dataset.course];
      if (second > length) continue;
      const x = `${(second / length) * 100}%`;
      other.querySelectorAll(".plot").forEach((plot, panel) => {
        draw(plot, "line", { class: "cross", x1: x, x2: x, y1: 0, y2: "100%" });
        if (other !== element) return;
        const [bottom, top] = [Number(plot.dataset.bottom), Number(plot.dataset.top)];
        for (const column of course.columns) {
          const value = column.panel === panel && column.ink !== "running" ? expand(column)[sample] : null;
          if (value === null || value === undefined || value > top) continue;
          draw(plot, "circle", { class: `dot ${column.ink}`, cx: x, cy: `${(1 - (value - bottom) / (top - bottom)) * 100}%`, r: 3.5 });
        }
      });
    }
  };

  /** Positions the tip next to the crosshair, on the side with enough room, within the window. */
  const position = (element, course, sample, y) => {
    const plot = element.querySelector(".plot").getBoundingClientRect();
    const x = plot.left + (Math.min((sample + 0.5) * course.period, course.length) / course.length) * plot.width;
    const { offsetWidth: width, offsetHeight: height } = tip;
    const right = x + 18 + width < document.documentElement.clientWidth;
    const left = Math.max(8, right ? x + 18 : x - 18 - width);
    const top = Math.max(8, Math.min(y ?? plot.top, window.innerHeight - height - 8));
    tip.style.transform = `translate(${Math.round(left)}px, ${Math.round(top)}px)`;
  };

  const show = (element, sample, y, aloud) => {
    const course = data.courses[element.dataset.course];
    sample = Math.max(0, Math.min(course.samples - 1, sample));
    now = { element, course, sample };
    tip.replaceChildren(...explain(course, sample));
    tip.hidden = false;
    cross(element, course, sample);
    position(element, course, sample, y);
    if (aloud) {
      const counts = course.columns.slice(0, 2).map((column) => `${expand(column)[sample]} ${column.label}`);
      say.textContent = `${clock(course, moment(course, sample * course.period))}: ${counts.join(", ")}. ${tip.querySelector(".sentence")?.textContent ?? ""}`;
    }
  };
  const hide = () => {
    pin(false);
    now = null;
    tip.hidden = true;
    document.querySelectorAll(".cross, .dot").forEach((mark) => mark.remove());
  };
  const pin = (value) => {
    if (!pinned && !value) return;
    pinned = value;
    tip.classList.toggle("kept", pinned);
    document.body.classList.toggle("kept", pinned);
    const hash = pinned && now ? `#c${now.element.dataset.course}@${now.sample * now.course.period}` : " ";
    // The address names the sample, so that users can share it. A browser may forbid this for files.
    try { history.replaceState(null, "", hash.trim() || location.pathname); } catch { /* optional */ }
  };

  const sampleAt = (element, x) => {
    const course = data.courses[element.dataset.course];
    const plot = element.querySelector(".plot").getBoundingClientRect();
    return Math.floor((((x - plot.left) / plot.width) * course.length) / course.period);
  };
  const within = (element, x) => {
    const plot = element.querySelector(".plot").getBoundingClientRect();
    return x >= plot.left - 4 && x <= plot.right + 4;
  };

  for (const element of document.querySelectorAll(".course[data-course]")) {
    const course = data.courses[element.dataset.course];
    const move = (event) => {
      if (pinned) return;
      if (within(element, event.clientX)) show(element, sampleAt(element, event.clientX), event.clientY + 12, false);
      else hide();
    };
    element.addEventListener("pointermove", move);
    element.addEventListener("pointerdown", move);
    element.addEventListener("pointerleave", () => { if (!pinned) hide(); });
    element.addEventListener("click", (event) => {
      if (!within(element, event.clientX)) return;
      if (pinned) {
        pin(false);
        move(event);
      } else if (now) {
        pin(true);
      }
    });
    element.addEventListener("keydown", (event) => {
      const sample = now?.element === element ? now.sample : Math.floor(course.samples / 2);
      const second = (sample + 1) * course.period - 0.001;
      const decision = lastBefore(course.decisions, second);
      const toSample = (entry) => (entry ? Math.floor(entry[0] / course.period) : sample);
      const far = Math.max(1, Math.round(course.samples / 48));
      const here = course.decisions[decision];
      const before = here && toSample(here) < sample ? here : course.decisions[decision - 1];
      const next = {
        ArrowLeft: () => sample - (event.shiftKey ? far : 1),
        ArrowRight: () => sample + (event.shiftKey ? far : 1),
        PageUp: () => toSample(before),
        PageDown: () => toSample(course.decisions[decision + 1]),
        Home: () => 0,
        End: () => course.samples - 1,
      }[event.key];
      if (next) {
        event.preventDefault();
        pin(false);
        show(element, next(), undefined, true);
      } else if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        if (!now) show(element, sample, undefined, true);
        pin(!pinned);
      }
    });
    element.addEventListener("blur", () => { if (!pinned) hide(); });
  }
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
  window.addEventListener("scroll", () => { if (now) position(now.element, now.course, now.sample); }, { passive: true });
  window.addEventListener("resize", () => { if (now) position(now.element, now.course, now.sample); });

  /** Shows the sample that the address or a link in a list names. */
  const goTo = (address, smooth) => {
    const [, chart, second] = /^#c(\d+)@([\d.]+)$/.exec(address) ?? [];
    const element = chart && document.getElementById(`c${chart}`);
    if (!element) return false;
    element.scrollIntoView({ block: "nearest", behavior: smooth ? "auto" : "instant" });
    show(element, Math.floor(Number(second) / data.courses[chart].period), undefined, true);
    pin(true);
    return true;
  };
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.(".happened a");
    if (link && goTo(link.getAttribute("href"), true)) event.preventDefault();
    else if (pinned && !event.target.closest(".course, #tip")) hide();
  });
  goTo(location.hash, false);
  window.addEventListener("hashchange", () => goTo(location.hash, true));

  // With several HPAs, a click on a score sorts them descending, then ascending, then resets the order.
  const table = document.querySelector(".scores table");
  if (table && table.tBodies.length > 1) {
    const given = [...table.tBodies];
    for (const head of table.querySelectorAll("thead .n")) {
      const order = make("button", head.textContent);
      order.type = "button";
      head.replaceChildren(order);
      order.addEventListener("click", () => {
        const next = { null: "descending", descending: "ascending" }[head.getAttribute("aria-sort")];
        table.querySelectorAll("[aria-sort]").forEach((other) => other.removeAttribute("aria-sort"));
        if (next) head.setAttribute("aria-sort", next);
        const value = (group) => Number(group.rows[0].cells[head.cellIndex].dataset.value);
        const sign = next === "ascending" ? 1 : -1;
        table.append(...(next ? [...given].sort((one, other) => sign * (value(one) - value(other))) : given));
      });
    }
  }

  const button = document.getElementById("theme");
  const themes = ["auto", "light", "dark"];
  button.hidden = false;
  button.addEventListener("click", () => {
    const shown = button.querySelector("span");
    const theme = themes[(themes.indexOf(shown.textContent) + 1) % themes.length];
    shown.textContent = theme;
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
  });
})();
