"use strict";
// Charts, drawn by uPlot in the colours of the page. A place shows one of a group of charts; a select of its name chooses the group.

(() => {
  const data = JSON.parse(document.getElementById("plots").textContent);
  const places = [...document.querySelectorAll("[data-plot]")], drawn = new Map();
  const chooserOf = (place) => document.getElementById(place.dataset.plot);

  const colour = (name) => {
    const probe = element("span", { style: `color: var(${name})` });
    document.body.append(probe);
    const found = getComputedStyle(probe).color;
    probe.remove();
    return found;
  };

  const spaced = (_, low, high) => {
    const margin = 0.04 * (high - low || Math.abs(high) || 1);
    return [low - margin, high + margin];
  };

  // A point and its interval for each x.
  const bars = (series) => (plot) => series.forEach((each, number) => {
    if (!plot.series[number + 1].show) return;
    const { ctx } = plot, dot = 4 * devicePixelRatio;
    ctx.save();
    ctx.strokeStyle = ctx.fillStyle = each.colour;
    ctx.lineWidth = 1.5 * devicePixelRatio;
    each.x.forEach((at, place) => {
      const across = plot.valToPos(at, "x", true), up = (to) => plot.valToPos(to, "y", true);
      ctx.beginPath();
      ctx.moveTo(across, up(each.low[place]));
      ctx.lineTo(across, up(each.high[place]));
      ctx.stroke();
      ctx.beginPath();
      ctx.arc(across, up(each.y[place]), dot, 0, 2 * Math.PI);
      ctx.fill();
    });
    ctx.restore();
  });

  function draw(place) {
    drawn.get(place)?.destroy();
    drawn.delete(place);
    const group = data[place.dataset.plot]?.[chooserOf(place)?.selectedIndex ?? 0];
    const chart = group?.charts[place.dataset.chart ?? 0];
    place.hidden = !chart;
    if (!chart) return;
    const [text, grid] = [colour("--muted"), colour("--line")], hasBars = chart.look === "bars";
    const axis = (label) => ({ label, stroke: text, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1 } });
    const value = (_, at) => (at === null || at === undefined ? "–" : at.toPrecision(3));
    const paths = chart.look === "steps" ? { paths: uPlot.paths.stepped({ align: 1 }) } : {};
    const series = [{ label: chart.x, value }], columns = [], bands = [];
    for (const { label, colour: stroke, x, y, low, high } of chart.series) {
      const look = { stroke, points: { show: false }, spanGaps: true, value, ...paths };
      series.push({ ...look, label, width: hasBars ? 1.4 : 2 });
      columns.push([x, y]);
      if (hasBars || !low) continue;
      bands.push({ series: [series.length, series.length + 1], fill: `${stroke}26` });
      for (const [name, end] of [["high", high], ["low", low]]) {
        series.push({ ...look, label: `${label}, ${name}`, width: 0, class: "band" });
        columns.push([x, end]);
      }
    }
    place.setAttribute("aria-label", `${group.title}: ${chart.y} over ${chart.x}`);
    drawn.set(place, new uPlot({
      width: place.clientWidth, height: 250,
      scales: { x: { time: false, ...(hasBars ? { range: spaced } : {}) }, y: { range: chart.range } },
      axes: [axis(chart.x), { ...axis(chart.y), size: 60 }],
      series, bands, hooks: hasBars ? { draw: [bars(chart.series)] } : {},
    }, uPlot.join(columns), place));
  }

  const drawAll = () => places.forEach(draw);
  for (const select of new Set(places.map(chooserOf).filter(Boolean))) {
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
