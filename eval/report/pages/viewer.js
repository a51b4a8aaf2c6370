"use strict";
// The episode viewer: videos of one or two variants in step, over their timelines.

const viewer = (() => {
  const { svg, time, verdict } = timeline;
  const variants = JSON.parse(document.getElementById("variants").textContent);
  const place = document.getElementById("viewer");
  const table = tables.find(({ name }) => name === "episodes");
  const link = (row) => row.querySelector('a[href^="#episode="]');
  const keyOf = (row) => new URLSearchParams(link(row).hash.slice(1)).get("episode");
  const speeds = ["0.25", "0.5", "1", "2", "4"];
  let isChosen = false; // whether a click opens the episode, which then scrolls to it
  let open = null; // {key, data, sides, seconds, length, hz, playing, speed}

  function load(key) {
    const script = element("script", { src: `episodes/${encodeURIComponent(key)}.js`, onload: () => script.remove() });
    script.addEventListener("error", () => {
      place.hidden = false;
      place.replaceChildren(element("p", { class: "note" }, `The episode ${key} is not in this report.`));
    });
    document.head.append(script);
  }

  function choose() {
    const side = (name, fallback) => {
      const chosen = variants.findIndex(({ label }) => label === address.get(name));
      return chosen < 0 ? fallback : chosen;
    };
    const chosen = [side("a", 0), ...(variants.length > 1 ? [side("b", 1)] : [])];
    return [...new Set(chosen)];
  }

  function show(data) {
    pause();
    const sides = choose().map((number) => ({ ...variants[number], number, ...(data.sides[number] ?? { missing: true }) }));
    const played = sides.filter((side) => !side.missing);
    const hz = played.find((side) => side.hz)?.hz ?? 1;
    const steps = Math.max(1, ...played.map((side) => side.steps));
    open = { key: data.key, data, sides, hz, steps, length: steps / hz, seconds: 0, playing: false, speed: open?.speed ?? 1 };
    place.hidden = false;
    place.replaceChildren(heading(), controls(), scrubber(), element("div", { class: "sides" }, ...sides.map(sideOf)), legend());
    for (const side of sides) timeline.draw(side, open);
    seek(Number(address.get("t")) || 0, { remember: false });
    markRow();
    const { top } = place.getBoundingClientRect();
    if (isChosen && (top < 0 || top > innerHeight / 2)) place.scrollIntoView();
    isChosen = false;
  }

  function heading() {
    const row = table.rows.map(({ row }) => row).find((each) => keyOf(each) === open.key);
    return element("h3", { tabindex: "-1" }, row ? `${link(row).textContent} (${open.key})` : open.key);
  }

  function controls() {
    const button = (label, onclick, attributes = {}) => element("button", { type: "button", onclick, ...attributes }, label);
    open.playButton = button("Play", () => (open.playing ? pause() : play()));
    const speed = element("select", { "aria-label": "Speed" }, ...speeds.map((each) => element("option", { value: each }, `${each}×`)));
    speed.value = `${open.speed}`;
    speed.addEventListener("change", () => { open.speed = Number(speed.value); for (const video of videos()) video.playbackRate = open.speed; });
    const step = (by) => seek((Math.round(open.seconds * open.hz) + by) / open.hz);
    open.clock = element("output", { "aria-label": "Simulated time" });
    const picks = variants.length < 3 ? [] : ["a", "b"].map((name, which) => {
      const select = element("select", {}, ...variants.map(({ label }) => element("option", { value: label }, label)));
      select.value = (open.sides[which] ?? open.sides[0]).label;
      select.addEventListener("change", () => { address.set({ [name]: select.value }); show(open.data); });
      return element("label", {}, which ? "beside " : "show ", select);
    });
    return element("div", { class: "controls" }, open.playButton,
      button("−1 step", () => step(-1)), button("+1 step", () => step(1)), speed, open.clock, ...picks,
      button("Previous episode", () => neighbour(-1)), button("Next episode", () => neighbour(1)), button("Close", close));
  }

  function scrubber() {
    open.scrubber = element("input", { type: "range", class: "scrubber", min: 0, max: open.steps, step: 1, "aria-label": "Control step" });
    open.scrubber.addEventListener("input", () => seek(open.scrubber.valueAsNumber / open.hz));
    return open.scrubber;
  }

  function sideOf(side) {
    const title = element("h3", {}, element("span", { class: "swatch", style: `background: ${side.colour}` }), side.label);
    if (side.missing) return element("div", { class: "side" }, title, element("p", { class: "note" }, "This variant has not played the episode."));
    title.append(": ", element("span", { class: side.outcome }, side.outcome.replace("_", " ")), side.hz ? `, ${time(side.steps / side.hz)}` : "");
    side.svg = svg("svg", { class: "timeline", role: "img", "aria-label": `Timeline of ${side.label}: ${summary(side)}` });
    side.svg.addEventListener("pointerdown", drag);
    side.svg.addEventListener("pointermove", (event) => { if (event.buttons) drag(event); });
    side.list = element("ul", { class: "texts" });
    const parts = [title];
    if (side.video) {
      side.player = element("video", { src: side.video, preload: "auto", muted: true, playsinline: true, "aria-label": `Video of ${side.label}` });
      side.player.addEventListener("loadedmetadata", () => { side.player.currentTime = open.seconds; });
      side.player.addEventListener("error", () => side.player.replaceWith(element("p", { class: "note" }, `The video ${side.video} cannot be played.`)));
      parts.push(side.player);
    } else parts.push(element("p", { class: "note" }, `No picture: ${side.no_video}.`));
    if (side.problem) parts.push(element("p", { class: "note" }, side.problem));
    parts.push(side.svg, side.list);
    if (side.texts.length) parts.push(allTexts(side));
    if (side.error) parts.push(element("p", { class: "note error" }, side.error), element("details", {}, element("summary", {}, "Traceback"), element("pre", {}, side.traceback)));
    return element("div", { class: "side" }, ...parts);
  }

  function summary({ queries, spans, texts }) {
    const steps = (kind) => spans.filter(([of]) => of === kind).reduce((sum, [, start, end]) => sum + end - start, 0);
    const late = queries.filter((query) => query.late).length;
    const counts = [[steps("idle"), "idle control steps"], [texts.length, "text requests"], [late, "deadline misses"]];
    return [`${queries.length} queries`, ...counts.filter(([count]) => count).map(([count, what]) => `${count} ${what}`)].join(", ");
  }

  function allTexts(side) {
    const item = (text) => {
      const at = element("button", { type: "button", onclick: () => seek((text.until ?? text.requested) / open.hz) }, time((text.until ?? text.requested) / open.hz));
      return element("li", { class: verdict(text.on_delivery).name }, at, " ", ...describe(text));
    };
    return element("details", {}, element("summary", {}, `All texts (${side.texts.length})`), element("ul", { class: "texts" }, ...side.texts.map(item)));
  }

  function describe(text) {
    const line = (words, attributes = {}) => element("div", attributes, words);
    const lines = [];
    const request = `${text.task}, requested at ${time(text.requested / open.hz)}`;
    if (text.state !== "finished") return [line(`${request}: ${text.state === "dropped" ? "dropped, no slot was free" : "not delivered before the end"}`)];
    const late = (1000 * (text.until - text.requested)) / open.hz;
    lines.push(line(`“${text.text}”`), line(`${request}, delivered ${late.toFixed(0)} ms later${text.oracle ? ", by the oracle" : ""}`, { class: "when" }));
    for (const [moment, mark] of [["when requested", text.at_request], ["on delivery", text.on_delivery]]) {
      const { name, words } = verdict(mark);
      lines.push(element("div", { class: "truth" }, element("span", { class: name }, words), ` ${moment}${mark ? `; the truth was “${mark.truth}”` : ""}`));
    }
    return lines;
  }

  function showTexts(side) {
    const step = open.seconds * open.hz + 1e-6;
    const items = [...new Set(side.texts.map(({ task }) => task))].map((task) => {
      const of = side.texts.filter((text) => text.task === task);
      const said = of.filter((text) => text.state === "finished" && text.until <= step).at(-1);
      const waiting = of.filter((text) => text.requested <= step && (text.until === null || text.until > step)).length;
      const pending = waiting ? element("div", { class: "when" }, `${waiting} in progress`) : "";
      if (!said) return element("li", {}, `${task}: nothing delivered yet`, pending);
      return element("li", { class: verdict(said.on_delivery).name }, ...describe(said), pending);
    });
    const truth = side.truths.filter(([at]) => at <= step).at(-1);
    if (truth) items.push(element("li", { class: "truth" }, `Truth now. ${truth[1]}`));
    const content = items.map((item) => item.textContent).join("\n");
    if (content !== side.said) { side.list.replaceChildren(...items); side.said = content; }
  }

  function legend() {
    const item = (style, words) => element("span", {}, element("span", { class: "swatch", style: `background: ${style}` }), words);
    const played = open.sides.filter((side) => !side.missing), any = (has) => played.some(has);
    const texts = any((side) => side.texts.length), span = (kind) => any(({ spans }) => spans.some(([of]) => of === kind));
    return element("p", { class: "legend" },
      "Query bar: until its actions came, then paler until the next query could start.",
      ...(span("idle") ? [item("var(--idle)", "robot idle")] : []),
      ...(span("continued") ? [item("var(--continued)", "previous chunk")] : []),
      ...(any(({ queries }) => queries.some((query) => query.skipped)) ? [item("var(--text)", "actions skipped")] : []),
      ...(texts ? [item("var(--right)", "text right on delivery"), item("var(--partly)", "partly"), item("var(--wrong)", "wrong"), item("var(--continued)", "text not delivered")] : []),
      ...(any(({ queries }) => queries.some((query) => query.late)) ? ["▼ deadline missed"] : []));
  }

  function drag(event) {
    const side = open.sides.find((each) => each.svg === event.currentTarget);
    const box = side.svg.getBoundingClientRect(), scale = side.svg.viewBox.baseVal.width / box.width;
    const [from, to] = [side.x(0), side.x(open.steps)];
    seek(open.length * Math.min(1, Math.max(0, ((event.clientX - box.left) * scale - from) / (to - from))));
  }

  const videos = () => open.sides.map((side) => side.player).filter((video) => video?.isConnected);

  function seek(seconds, { remember = true } = {}) {
    open.seconds = Math.min(open.length, Math.max(0, seconds));
    for (const video of videos()) if (video.readyState) video.currentTime = open.seconds;
    moved();
    if (remember) address.set({ t: open.seconds ? open.seconds.toFixed(2) : null });
  }

  function moved() {
    const step = Math.round(open.seconds * open.hz);
    open.scrubber.value = step;
    open.scrubber.setAttribute("aria-valuetext", `${time(open.seconds)}, control step ${step}`);
    open.clock.textContent = `${time(open.seconds)}, step ${step}`;
    for (const side of open.sides) {
      if (side.missing) continue;
      for (const end of ["x1", "x2"]) side.head.setAttribute(end, side.x(open.seconds * open.hz));
      showTexts(side);
    }
  }

  function play() {
    if (open.seconds >= open.length) seek(0);
    open.playing = true;
    open.playButton.textContent = "Pause";
    for (const video of videos()) { video.playbackRate = open.speed; video.play().catch(() => {}); }
    const playing = open;
    let before = performance.now();
    const tick = (now) => {
      if (open !== playing || !playing.playing) return;
      open.seconds = Math.min(open.length, open.seconds + ((now - before) / 1000) * open.speed);
      before = now;
      for (const video of videos()) if (!video.ended && Math.abs(video.currentTime - open.seconds) > 0.2) video.currentTime = open.seconds;
      moved();
      if (open.seconds < open.length) requestAnimationFrame(tick);
      else { open.playing = false; open.playButton.textContent = "Play"; } // videos show the outcome on their last pictures
    };
    requestAnimationFrame(tick);
  }

  function pause() {
    if (!open) return;
    open.playing = false;
    open.playButton.textContent = "Play";
    for (const video of videos()) video.pause();
    address.set({ t: open.seconds ? open.seconds.toFixed(2) : null });
  }

  function go(key) {
    if (open) pause();
    isChosen = true;
    address.set({ episode: key, t: null });
    load(key);
  }

  function neighbour(by) {
    const keys = table.chosen().rows.map(({ row }) => keyOf(row));
    const next = keys[keys.indexOf(open.key) + by];
    if (next) go(next);
  }

  function close() {
    const row = table.rows.map(({ row }) => row).find((each) => keyOf(each) === open.key);
    pause();
    open = null;
    place.hidden = true;
    place.replaceChildren();
    address.set({ episode: null, t: null });
    markRow();
    if (row?.isConnected) link(row).focus();
  }

  function markRow() {
    for (const { row } of table.rows) {
      if (open && keyOf(row) === open.key) row.setAttribute("aria-current", "true");
      else row.removeAttribute("aria-current");
    }
  }

  if (table) {
    document.addEventListener("click", (event) => {
      const chosen = event.target.closest('a[href^="#episode="]');
      if (!chosen || event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      go(new URLSearchParams(chosen.hash.slice(1)).get("episode"));
    });
    addEventListener("hashchange", () => { const key = address.get("episode"); if (key && key !== open?.key) load(key); });
    addEventListener("resize", () => { if (open) { for (const side of open.sides) timeline.draw(side, open); moved(); } });
    if (address.get("episode")) load(address.get("episode"));
  }
  return { show };
})();

function showEpisode(data) {
  viewer.show(data);
}
