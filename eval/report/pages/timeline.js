"use strict";
// The timeline of an episode: queries, what was executed, and texts, over simulated time.

const timeline = (() => {
  const marks = { right: "✓ right", partly: "◐ partly right", wrong: "✗ wrong" };

  const svg = (name, attributes, ...children) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  };
  const time = (seconds) => `${seconds.toFixed(2)} s`;

  function verdict(mark) {
    if (!mark) return { name: "", words: "no truth to compare with" };
    if (mark.score === null) return { name: "wrong", words: "not readable" };
    const name = mark.score > 99.99 ? "right" : mark.score > 0 ? "partly" : "wrong";
    return { name, words: name === "partly" ? `${marks[name]} (${mark.score.toFixed(0)} %)` : marks[name] };
  }

  function lanes(texts, steps) {
    const placed = [];
    for (const text of texts) {
      const lane = placed.findIndex((ends) => ends <= text.requested);
      const end = text.until ?? steps;
      if (lane < 0) { text.lane = placed.length; placed.push(end); } else { text.lane = lane; placed[lane] = end; }
    }
    return Math.max(1, placed.length);
  }

  function draw(side, { steps, hz, length }) {
    if (side.missing) return;
    const label = 72, width = Math.max(280, side.svg.parentElement.clientWidth), x = (step) => label + (step / steps) * (width - label - 4);
    side.x = x;
    const parts = [];
    let top = 12;
    const name = (words, height) => parts.push(svg("text", { x: 0, y: top + height - 3 }, words));
    const bar = (from, to, y, height, fill, title, opacity = 1) =>
      parts.push(svg("rect", { x: x(from), y, width: Math.max(1, x(to) - x(from) - 0.5), height, fill, opacity }, svg("title", {}, title)));
    name("queries", 13);
    for (const query of side.queries) {
      bar(Math.min(query.actions, side.steps), Math.min(query.free, side.steps), top + 3, 7, side.colour, `until ${time(query.free / hz)} the next query could not start`, 0.4);
      bar(query.issued, Math.min(query.actions, side.steps), top, 13, side.colour, `query at ${time(query.issued / hz)}, actions at ${time(query.actions / hz)}`);
      if (query.late) parts.push(svg("path", { d: `M${x(query.issued)} ${top - 1} l-4 -7 h8 z`, fill: "var(--wrong)" }, svg("title", {}, "deadline missed")));
    }
    top += 17;
    name("executed", 11);
    const fills = { idle: "var(--idle)", continued: "var(--continued)" };
    const words = { new: "new chunk", continued: "previous chunk continued", idle: "idle" };
    for (const [kind, start, end] of side.spans) bar(start, end, top, kind === "continued" ? 6 : 11, fills[kind] ?? side.colour, `${words[kind]}, ${end - start} control steps`, kind === "new" ? 0.7 : 1);
    for (const query of side.queries) {
      if (query.skipped) parts.push(svg("rect", { x: x(query.actions) - 1, y: top - 3, width: 2, height: 6, fill: "var(--text)" }, svg("title", {}, `${query.skipped} actions of the new chunk skipped`)));
    }
    top += 16;
    for (const task of new Set(side.texts.map((text) => text.task))) {
      const texts = side.texts.filter((text) => text.task === task), count = lanes(texts, side.steps), height = count > 4 ? 4 : 8;
      name(task.length > 11 ? `${task.slice(0, 10)}…` : task, 10);
      for (const text of texts) {
        const { name: right, words: said } = verdict(text.on_delivery);
        const fill = text.state !== "finished" ? "var(--continued)" : right ? `var(--${right})` : "var(--accent)";
        bar(text.requested, text.until ?? side.steps, top + text.lane * (height + 1), height, fill, `${task}: ${text.state === "finished" ? `“${text.text}”, ${said}` : text.state}`);
      }
      top += Math.max(12, count * (height + 1)) + 4;
    }
    for (let second = 0; second <= length; second += length > 16 ? 5 : length > 6 ? 2 : 1) {
      parts.push(svg("text", { x: x(second * hz), y: top + 11, "text-anchor": "middle" }, `${second} s`));
    }
    side.head = svg("line", { x1: label, x2: label, y1: 2, y2: top, stroke: "var(--text)", "stroke-width": 2 });
    side.svg.setAttribute("viewBox", `0 0 ${width} ${top + 16}`);
    side.svg.replaceChildren(...parts, side.head);
  }
  return { draw, svg, time, verdict };
})();
