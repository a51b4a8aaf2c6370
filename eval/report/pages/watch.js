"use strict";
// A run that is going on: every event has the whole state of the page.

(() => {
  const STALE_S = 10;
  const at = (id) => document.getElementById(id);
  const pictures = new Map(); // by episode: its figure, and when its picture last changed
  let plots = "", errors = "";

  const plural = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;
  const number = (value, digits, unit) => (value === null ? "–" : `${value.toFixed(digits)}${unit}`);
  const milliseconds = (value, unit = " ms") => number(value, value < 10 ? 2 : value < 100 ? 1 : 0, unit);
  const label = ({ label: name, colour }) => {
    const swatch = element("span", { class: "swatch" });
    swatch.style.background = colour;
    return element("span", { class: "label" }, swatch, name);
  };

  function duration(seconds) {
    if (seconds < 90) return `${Math.max(1, Math.round(seconds))} s`;
    return seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
  }

  function sentence({ status, recorded, planned, left_s, n_errors }) {
    const said = {
      running: "Running",
      complete: "Complete",
      interrupted: "Interrupted; the same command with --resume completes it",
      stopped: "Stopped: its process has ended; the same command with --resume completes it",
    }[status] ?? status;
    const left = left_s === null ? "" : `, about ${duration(left_s)} left`;
    const failed = n_errors ? `, ${plural(n_errors, "error")}` : "";
    return `${said}: ${recorded} of ${plural(planned, "episode")} recorded${failed}${left}.`;
  }

  function runRow(run) {
    const { solved, latency_ms: latency } = run;
    const of = (stage) => `${milliseconds(latency[stage].p50, "")} / ${milliseconds(latency[stage].p95)}`;
    const cells = [
      `${run.recorded} of ${run.planned}`,
      solved ? `${solved.hits} of ${solved.of} (${solved.percent.toFixed(1)} %)` : "–",
      solved ? `${solved.low.toFixed(1)} – ${solved.high.toFixed(1)} %` : "–",
      run.n_errors, run.n_invalid_actions, of("action"), of("frame"),
    ];
    return element("tr", {}, element("th", { scope: "row" }, label(run)), ...cells.map((each) => element("td", { class: "n" }, each)));
  }

  function endedRow(each) {
    const outcome = element("td", { class: each.outcome }, each.outcome.replace("_", " "));
    const times = [number(each.simulated_s, 1, " s"), number(each.wall_s, 1, " s")];
    return element("tr", {}, element("th", { scope: "row" }, label(each)), element("td", {}, each.episode),
      element("td", {}, each.task), outcome, ...times.map((said) => element("td", { class: "n" }, said)));
  }

  function showPlaying(playing, status) {
    const kept = new Set();
    for (const each of playing) {
      const name = `${each.label} ${each.episode}`;
      const known = pictures.get(name) ?? figure(each);
      if (known.picture !== each.picture) Object.assign(known, { picture: each.picture, changed: performance.now() });
      if (known.image.getAttribute("src") !== each.picture) known.image.setAttribute("src", each.picture);
      const limit = each.max_steps === null ? "" : ` of ${each.max_steps}`;
      const parts = [each.step === null ? null : `step ${each.step}${limit}`,
        each.latency_ms.action === null ? null : `actions after ${milliseconds(each.latency_ms.action)}`];
      known.words.textContent = parts.filter(Boolean).join(", ");
      pictures.set(name, known);
      kept.add(name);
    }
    for (const name of [...pictures.keys()].filter((each) => !kept.has(each))) pictures.delete(name);
    at("playing-section").hidden = status !== "running";
    const shown = [...pictures.values()].map(({ whole }) => whole);
    const before = [...at("playing").children];
    if (!shown.length) at("playing").replaceChildren(element("p", {}, "No picture yet: an episode shows one after its first query."));
    else if (shown.length !== before.length || shown.some((each, place) => each !== before[place])) at("playing").replaceChildren(...shown);
    showAges();
  }

  function figure(each) {
    const image = element("img", { alt: `Cameras of ${each.episode}` });
    const [words, age] = [element("span"), element("strong", { class: "timeout" })];
    const caption = element("figcaption", {}, label(each), element("span", {}, each.episode), words, age);
    return { whole: element("figure", {}, image, caption), image, words, age, picture: null, changed: 0 };
  }

  function showAges() {
    for (const { age, changed } of pictures.values()) {
      const seconds = (performance.now() - changed) / 1000;
      age.textContent = seconds > STALE_S ? `no new picture for ${duration(seconds)}` : "";
    }
  }

  function showErrors({ errors: last, n_errors: count }) {
    at("errors-section").hidden = !count;
    if (JSON.stringify(last) === errors) return; // what is open stays open
    errors = JSON.stringify(last);
    const whole = last.map((each) => element("details", {},
      element("summary", {}, label(each), `${each.episode}: ${each.outcome.replace("_", " ")}: ${each.error}`),
      element("pre", { tabindex: "0" }, each.traceback)));
    const more = count > last.length ? [element("p", {}, `The last ${last.length} of ${count}.`)] : [];
    at("errors").replaceChildren(...more, ...whole);
  }

  function show(state) {
    const said = sentence(state);
    if (at("status").textContent !== said) at("status").textContent = said;
    at("progress").max = Math.max(1, state.planned);
    at("progress").value = state.recorded;
    at("report").hidden = !state.has_report;
    at("problems").replaceChildren(...state.problems.map((each) => element("p", { class: "note" }, each)));
    at("runs").replaceChildren(...state.runs.map(runRow));
    at("ended-section").hidden = !state.ended.length;
    at("ended").replaceChildren(...state.ended.map(endedRow));
    showPlaying(state.playing, state.status);
    showErrors(state);
    if (JSON.stringify(state.plots) === plots) return;
    plots = JSON.stringify(state.plots);
    for (const section of document.querySelectorAll("[data-graded]")) section.hidden = !state.plots.success;
    document.dispatchEvent(new CustomEvent("plots", { detail: state.plots }));
  }

  const events = new EventSource("events");
  events.addEventListener("message", ({ data }) => show(JSON.parse(data)));
  events.addEventListener("open", () => { at("connection").hidden = true; });
  events.addEventListener("error", () => { at("connection").hidden = false; });
  setInterval(showAges, 1000);
})();
