"use strict";
// Plots, drawn by uPlot in the colours of the page.

(() => {
  const data = JSON.parse(document.getElementById("plots").textContent);
  const quantity = document.getElementById("quantity"), charts = document.getElementById("charts");
  const drawn = new Map();

  const colour = (name) => {
    const probe = element("span", { style: `color: var(${name})` });
    document.body.append(probe);
    const found = getComputedStyle(probe).color;
    probe.remove();
    return found;
  };

  function draw(place, { x, y, series, bands = [], range = [0, 100], hooks = {} }, columns) {
    drawn.get(place)?.destroy();
    const [text, line] = [colour("--muted"), colour("--line")];
    const axis = (label) => ({ label, stroke: text, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 } });
    const options = {
      width: place.clientWidth, height: 250,
      scales: { x: { time: false, ...(hooks.draw ? { range: spaced } : {}) }, y: { range } },
      axes: [axis(x), { ...axis(y), size: 60 }],
      series: [{ label: x, value: (_, value) => value?.toFixed(2) ?? "–" }, ...series], bands, hooks,
    };
    drawn.set(place, new uPlot(options, columns, place));
  }

  const line = ({ label, colour: stroke }, unit, extra = {}) => ({
    label, stroke, width: 2, points: { show: false }, spanGaps: true,
    value: (_, value) => (value === null || value === undefined ? "–" : `${value.toFixed(1)} ${unit}`), ...extra,
  });

  function curves(place) {
    const { x, x_label, y_label, unit, most, series: curves } = data[place.dataset.plot];
    const look = { paths: uPlot.paths.stepped({ align: 1 }) };
    const series = [], columns = [x], bands = [];
    for (const each of curves) {
      const first = series.length + 1;
      series.push(line(each, unit, look));
      for (const end of ["high", "low"]) {
        series.push(line({ ...each, label: `${each.label}, ${end}` }, unit, { ...look, width: 0, class: "band" }));
      }
      bands.push({ series: [first + 1, first + 2], fill: `${each.colour}26` });
      columns.push(each.y, each.high, each.low);
    }
    draw(place, { x: x_label, y: y_label, range: [0, most], series, bands }, columns);
  }

  function distribution(place) {
    const chosen = data.distributions.find(({ name }) => name === quantity.value);
    const columns = uPlot.join(chosen.series.map(({ x }) => cumulative(x)));
    draw(place, { x: chosen.name, y: "cumulative share (%)", series: chosen.series.map((each) => line(each, "%")) }, columns);
  }

  const spaced = (_, low, high) => {
    const margin = 0.04 * (high - low || Math.abs(high) || 1);
    return [low - margin, high + margin];
  };

  // Lines with intervals and marks.
  function chart(place) {
    const group = data.charts[charts.selectedIndex], shown = group.charts[place.dataset.chart];
    place.hidden = !shown;
    if (!shown) return;
    const { x, y, range, series } = shown;
    place.setAttribute("aria-label", `${group.title}: ${y} over ${x}; the table has the values`);
    const value = (_, at) => (at === null || at === undefined ? "–" : at.toPrecision(3));
    const lines = series.map((each) => line(each, "", { value, width: 1.4 }));
    const dot = 4 * devicePixelRatio;
    const marks = (plot) => series.forEach((each, number) => {
      if (!plot.series[number + 1].show) return;
      const { ctx } = plot;
      ctx.save();
      ctx.strokeStyle = each.colour;
      ctx.lineWidth = 1.5 * devicePixelRatio;
      each.x.forEach((at, place) => {
        const across = plot.valToPos(at, "x", true), up = (to) => plot.valToPos(to, "y", true);
        ctx.beginPath();
        ctx.moveTo(across, up(each.low[place]));
        ctx.lineTo(across, up(each.high[place]));
        ctx.stroke();
        ctx.beginPath();
        ctx.arc(across, up(each.y[place]), dot, 0, 2 * Math.PI);
        ctx.fillStyle = each.colour;
        ctx.fill();
        ctx.stroke();
      });
      ctx.restore();
    });
    draw(place, { x, y, range, series: lines, hooks: { draw: [marks] } }, uPlot.join(series.map((each) => [each.x, each.y])));
  }

  function cumulative(quantiles) {
    const [least] = quantiles, xs = [Math.min(0, least) - 1e-6, least - 1e-6 * Math.abs(least)], ys = [0, 0]; // a constant is a step
    quantiles.forEach((x, place) => {
      const percent = (100 * place) / (quantiles.length - 1);
      if (xs[xs.length - 1] === x) ys[ys.length - 1] = percent;
      else { xs.push(x); ys.push(percent); }
    });
    return [xs, ys];
  }

  const drawing = { distribution, chart };
  const places = [...document.querySelectorAll("[data-plot]")];
  const drawAll = () => places.forEach((place) => {
    const draws = drawing[place.dataset.plot] ?? (data[place.dataset.plot] ? curves : () => {});
    draws(place);
  });

  for (const select of [quantity, charts].filter(Boolean)) {
    const restore = () => {
      const wanted = address.get(select.id);
      if ([...select.options].some(({ value }) => value === wanted)) select.value = wanted;
    };
    restore();
    addEventListener("hashchange", () => { restore(); drawAll(); });
    select.addEventListener("change", () => { address.set({ [select.id]: select.value }); drawAll(); });
  }
  document.addEventListener("theme", drawAll);
  new ResizeObserver(() => requestAnimationFrame(() => {
    for (const [place, plot] of drawn) plot.setSize({ width: place.clientWidth, height: 250 });
  })).observe(document.getElementById("content"));
  drawAll();
})();
