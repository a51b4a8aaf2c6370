"use strict";
// The report of a run that goes on: shows progress and pictures, and reloads the page when the report has changed.

(() => {
  const at = (id) => document.getElementById(id);
  const { version } = at("live").dataset;
  const figures = new Map();
  const details = [...document.querySelectorAll("details")];
  const name = (each) => each.querySelector("summary").textContent;

  for (const each of details) each.open = (sessionStorage.getItem("open") ?? "").split("\n").includes(name(each));

  function figure({ name, picture }) {
    if (!figures.has(name)) figures.set(name, element("figure", {}, element("img", { alt: `Cameras of ${name}` }), element("figcaption", {}, name)));
    const image = figures.get(name).firstChild;
    if (image.getAttribute("src") !== picture) image.setAttribute("src", picture);
    return figures.get(name);
  }

  function show({ words, recorded, planned, problem, playing }) {
    if (at("status").textContent !== words) at("status").textContent = words;
    Object.assign(at("progress"), { max: Math.max(1, planned), value: recorded });
    note(problem);
    const shown = playing.map(figure), before = [...at("playing").children];
    if (shown.length !== before.length || shown.some((each, place) => each !== before[place])) at("playing").replaceChildren(...shown);
  }

  function note(words) {
    at("note").hidden = !words;
    at("note").textContent = words;
  }

  async function follow() {
    const isUsed = !at("viewer").hidden || document.activeElement.matches("input, select");
    try {
      const state = await (await fetch("live")).json();
      show(state);
      if (state.version !== version && !isUsed) {
        sessionStorage.setItem("open", details.filter(({ open }) => open).map(name).join("\n"));
        location.reload();
        return;
      }
      if (state.version !== version) note("There is more: the report is refreshed when the episode is closed and no field is in use.");
    } catch {
      note("The connection is lost: what is shown may be old. oxygen-eval watch may have ended.");
    }
    setTimeout(follow, 1000);
  }
  follow();
})();
