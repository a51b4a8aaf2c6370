"use strict";
// Theme, the state kept in the page's address, and tables that sort, filter, group and page.

const address = {
  all() {
    return new URLSearchParams(location.hash.slice(1));
  },
  get(name) {
    return this.all().get(name);
  },
  set(values) {
    const state = this.all();
    for (const [name, value] of Object.entries(values)) {
      if (value === null || value === "") state.delete(name);
      else state.set(name, value);
    }
    history.replaceState(null, "", `#${state}`);
  },
};

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== null && value !== false) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

function themeButton(button) {
  const stored = { get: () => { try { return localStorage.getItem("theme"); } catch { return null; } } };
  const isDark = () => {
    const chosen = document.documentElement.dataset.theme;
    return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  };
  const apply = (theme) => {
    if (theme) document.documentElement.dataset.theme = theme;
    button.textContent = isDark() ? "Light mode" : "Dark mode";
    document.dispatchEvent(new Event("theme"));
  };
  button.addEventListener("click", () => {
    const theme = isDark() ? "light" : "dark";
    try { localStorage.setItem("theme", theme); } catch { /* the choice holds until the page is left */ }
    apply(theme);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => apply());
  apply(stored.get());
}

class SortedTable {
  constructor(table) {
    this.table = table;
    this.name = table.dataset.table;
    this.size = Number(table.dataset.page);
    this.heads = [...table.tHead.rows[0].cells];
    const rows = [...table.tBodies[0].rows];
    table.tBodies[0].replaceChildren(); // a page of rows is laid out, not all
    this.rows = rows.map((row, place) => ({
      row, place,
      values: [...row.cells].map((cell, column) => this.value(cell, column)),
      text: row.textContent.toLowerCase(),
    }));
    for (const row of rows) row.hidden = false;
    this.controls = element("div", { class: "controls" });
    this.addControls();
    const frame = table.closest(".scroll") || table;
    frame.before(this.controls);
    this.pager = element("div", { class: "controls" });
    frame.after(this.pager);
    this.restore();
    addEventListener("hashchange", () => this.restore());
  }

  key(part) { return `${this.name}.${part}`; }

  value(cell, column) {
    const said = cell.querySelector("[data-value]")?.dataset.value ?? cell.textContent.trim();
    if (this.heads[column].dataset.kind !== "number") return said;
    const number = Number.parseFloat(said);
    return Number.isNaN(number) ? null : number;
  }

  addControls() {
    this.heads.forEach((head, column) => {
      if (!head.dataset.kind) return;
      const button = element("button", { type: "button", onclick: () => this.sortBy(column) });
      button.append(...head.childNodes);
      head.append(button);
    });
    if (this.heads.some((head) => head.classList.contains("extra"))) {
      this.all = element("button", { type: "button", onclick: () => this.update({ all: this.all.ariaPressed === "true" ? null : 1 }) }, "All columns");
      this.controls.append(this.all);
    }
    if (this.rows.length < 2) return;
    this.search = element("input", { type: "search", placeholder: "Filter rows", "aria-label": `Filter ${this.name}` });
    this.search.addEventListener("input", () => this.update({ filter: this.search.value, page: null }));
    this.controls.append(this.search);
    this.selects = new Map();
    this.heads.forEach((head, column) => {
      const choices = [...new Set(this.rows.map(({ values }) => String(values[column])))].sort();
      if ("choices" in head.dataset && choices.length > 1) this.addSelect(`is-${column}`, head.textContent, "all", choices);
    });
    const groups = this.heads.filter((head) => "groups" in head.dataset).map((head) => head.textContent);
    if (groups.length) this.addSelect("group", "Group by", "nothing", groups);
  }

  addSelect(part, label, none, choices) {
    const select = element("select", {}, element("option", { value: "" }, none), ...choices.map((each) => element("option", { value: each }, each)));
    select.addEventListener("change", () => this.update({ [part]: select.value, page: null }));
    this.selects.set(part, select);
    this.controls.append(element("label", {}, `${label} `, select));
  }

  sortBy(column) {
    const before = address.get(this.key("sort"));
    this.update({ sort: before === `${column}` ? `-${column}` : `${column}`, page: null });
  }

  update(parts) {
    address.set(Object.fromEntries(Object.entries(parts).map(([part, value]) => [this.key(part), value])));
    this.show();
  }

  restore() {
    if (this.search) this.search.value = address.get(this.key("filter")) ?? "";
    for (const [part, select] of this.selects ?? []) select.value = address.get(this.key(part)) ?? "";
    this.show();
  }

  chosen() {
    const state = address.all(), get = (part) => state.get(this.key(part));
    const words = (get("filter") ?? "").toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = this.heads.map((_, column) => [column, get(`is-${column}`)]).filter(([, value]) => value !== null);
    const kept = this.rows.filter(({ text, values }) => words.every((word) => text.includes(word))
      && wanted.every(([column, value]) => String(values[column]) === value));
    const sort = get("sort");
    const column = sort === null ? -1 : Number(sort.replace("-", ""));
    const descending = sort !== null && sort.startsWith("-");
    this.heads.forEach((head, place) => {
      if (head.dataset.kind) head.setAttribute("aria-sort", place !== column ? "none" : descending ? "descending" : "ascending");
    });
    const group = this.heads.findIndex((head) => head.textContent === get("group"));
    return { group, rows: kept.sort((a, b) => (group < 0 ? 0 : compare(a.values[group], b.values[group]))
      || (column < 0 ? 0 : compare(a.values[column], b.values[column], descending)) || a.place - b.place) };
  }

  show() {
    const { group, rows } = this.chosen(), all = address.get(this.key("all")) !== null;
    this.table.classList.toggle("all", all);
    if (this.all) this.all.ariaPressed = all;
    const pages = Math.max(1, Math.ceil(rows.length / this.size));
    const page = Math.min(Math.max(1, Number(address.get(this.key("page"))) || 1), pages);
    const shown = rows.slice((page - 1) * this.size, page * this.size);
    const body = [];
    shown.forEach(({ row, values }, place) => {
      if (group >= 0 && (place === 0 || shown[place - 1].values[group] !== values[group])) {
        body.push(element("tr", { class: "group" }, element("th", { colspan: this.heads.length, scope: "rowgroup" }, String(values[group]))));
      }
      body.push(row);
    });
    this.table.tBodies[0].replaceChildren(...body);
    this.showPager(rows.length, page, pages);
    this.table.dispatchEvent(new Event("shown"));
  }

  showPager(count, page, pages) {
    const go = (to, label) => element("button", {
      type: "button", disabled: to < 1 || to > pages, "aria-label": `${label} page of ${this.name}`,
      onclick: () => { this.update({ page: to === 1 ? null : to }); this.pager.querySelector("button:not([disabled])")?.focus(); },
    }, label);
    const of = `${this.rows.length} ${this.rows.length === 1 ? "row" : "rows"}`;
    const whole = this.rows.length === count ? of : `${count} of ${of}`;
    this.pager.replaceChildren(
      element("span", { role: "status" }, pages > 1 ? `Page ${page} of ${pages}, ${whole}` : whole),
      ...(pages > 1 ? [go(page - 1, "Previous"), go(page + 1, "Next")] : []));
  }
}

function compare(a, b, descending = false) {
  if (a === null || b === null) return (a === null) - (b === null);
  const order = typeof a === "number" ? a - b : a.localeCompare(b, "en", { numeric: true });
  return descending ? -order : order;
}

themeButton(document.getElementById("theme"));
for (const link of document.querySelectorAll(".skip, nav a")) {
  link.addEventListener("click", (event) => {
    event.preventDefault(); // the address keeps its state
    const target = document.querySelector(link.hash), folded = target.closest("details");
    if (folded) folded.open = true;
    target.scrollIntoView();
    (folded?.querySelector("summary") ?? target).focus({ preventScroll: true });
  });
}
let unfolded = [];
addEventListener("beforeprint", () => {
  unfolded = [...document.querySelectorAll("details:not([open])")];
  for (const each of unfolded) each.open = true;
});
addEventListener("afterprint", () => { for (const each of unfolded) each.open = false; });
const tables = [...document.querySelectorAll("table[data-table]")].map((table) => new SortedTable(table));
