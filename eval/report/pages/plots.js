"use strict";
// Plots, drawn by uPlot in the colours of the page. Event `plots` of the document has other data for them.

(() => {
  let data = JSON.parse(document.getElementById("plots").textContent);
  const FEW = 30; // points that are marked
  const COUNTS = [1, 2, 5].flatMap((each) => [0, 1, 2, 3, 4].map((power) => each * 10 ** power)).sort((a, b) => a - b);
  const quantity = document.getElementById("quantity");
  const drawn = new Map();

  const colour = (name) => {
    const probe = element("span", { style: `color: var(${name})` });
    document.body.append(probe);
    const found = getComputedStyle(probe).color;
    probe.remove();
    return found;
  };

  function draw(place, { x, y, most = 100, counts = false, series, bands = [] }, columns) {
    drawn.get(place)?.destroy();
    const [text, line] = [colour("--muted"), colour("--line")];
    const axis = (label) => ({ label, stroke: text, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 } });
    const options = {
      width: place.clientWidth, height: 250,
      scales: { x: { time: false }, y: { range: (_, low, high) => [0, most ?? 1.05 * high] } },
      axes: [{ ...axis(x), ...(counts ? { incrs: COUNTS } : {}) }, { ...axis(y), size: 60 }],
      series: [{ label: x, value: (_, value) => value?.toFixed(counts ? 0 : 2) ?? "–" }, ...series], bands,
    };
    drawn.set(place, new uPlot(options, columns, place));
  }

  const line = ({ label, colour: stroke }, unit, extra = {}) => ({
    label, stroke, width: 2, points: { show: false }, spanGaps: true,
    value: (_, value) => (value === null || value === undefined ? "–" : `${value.toFixed(1)} ${unit}`), ...extra,
  });

  function curves(place) {
    const { x, x_label, y_label, unit, most, counts = false, series: curves } = data[place.dataset.plot];
    const look = counts ? { points: { show: x.length <= FEW } } : { paths: uPlot.paths.stepped({ align: 1 }) };
    const series = [], columns = [x], bands = [];
    for (const each of curves) {
      const first = series.length + 1;
      series.push(line(each, unit, look));
      for (const end of ["high", "low"]) {
        series.push(line({ ...each, label: `${each.label}, ${end}` }, unit, { ...look, points: { show: false }, width: 0, class: "band" }));
      }
      bands.push({ series: [first + 1, first + 2], fill: `${each.colour}26` });
      columns.push(each.y, each.high, each.low);
    }
    draw(place, { x: x_label, y: y_label, most, counts, series, bands }, columns);
  }

  function distribution(place) {
    const chosen = data.distributions.find(({ name }) => name === quantity.value);
    const columns = uPlot.join(chosen.series.map(({ x }) => cumulative(x)));
    draw(place, { x: chosen.name, y: "values up to this (%)", series: chosen.series.map((each) => line(each, "%")) }, columns);
  }

  function cumulative(quantiles) {
    const xs = [], ys = [];
    quantiles.forEach((x, place) => {
      const percent = (100 * place) / (quantiles.length - 1);
      if (xs.length && xs[xs.length - 1] === x) ys[ys.length - 1] = percent;
      else { xs.push(x); ys.push(percent); }
    });
    return [xs, ys];
  }

  const places = [...document.querySelectorAll("[data-plot]")];
  const drawAll = () => places.forEach((place) => {
    if (place.dataset.plot === "distribution") distribution(place);
    else if (data[place.dataset.plot]) curves(place);
  });

  if (quantity) {
    const restore = () => {
      const wanted = address.get("quantity");
      if (wanted && data.distributions.some(({ name }) => name === wanted)) quantity.value = wanted;
    };
    restore();
    addEventListener("hashchange", () => { restore(); drawAll(); });
    quantity.addEventListener("change", () => { address.set({ quantity: quantity.value }); drawAll(); });
  }
  document.addEventListener("theme", drawAll);
  document.addEventListener("plots", ({ detail }) => { data = detail; drawAll(); });
  new ResizeObserver(() => requestAnimationFrame(() => {
    for (const [place, plot] of drawn) plot.setSize({ width: place.clientWidth, height: 250 });
  })).observe(document.getElementById("content"));
  drawAll();
})();
