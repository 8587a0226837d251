"use strict";
// Draws the charts from the numbers that the server wrote into the page, keeps the page current, and makes choosing
// quick. Without it the pages, their tables and the timeline of a turn are complete.

const root = document.documentElement;
const $ = (selector, from = document) => from.querySelector(selector);
const $$ = (selector, from = document) => [...from.querySelectorAll(selector)];
const colour = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();
const resolved = (name) => {
  // A canvas knows no light-dark(): let the browser compute it.
  const probe = document.createElement("i");
  probe.style.color = `var(--${name})`;
  document.body.append(probe);
  const value = getComputedStyle(probe).color;
  probe.remove();
  return value;
};

// --- Numbers and times, as the server writes them

const units = {
  count: (v) => (v >= 1e6 ? `${+(v / 1e6).toPrecision(3)} M` : String(Math.round(v)).replace(/\B(?=(\d{3})+$)/g, "\u202f")),
  share: (v) => `${v === 0 || v === 1 ? v * 100 : (v * 100).toFixed(1)}%`,
  seconds: (v) => (v === 0 ? "0" : v >= 120 ? `${Math.floor(v / 60)} min` : v >= 1 ? `${+v.toPrecision(3)} s` : `${Math.round(v * 1000)} ms`),
};
const sameDay = (date) => date.toDateString() === new Date().toDateString();
const clock = (date) => date.toLocaleTimeString([], { hourCycle: "h23" }) + (sameDay(date) ? "" : `, ${date.toLocaleDateString()}`);
function writeTimes(from = document) {
  for (const time of $$("time[datetime]", from)) {
    const date = new Date(time.dateTime);
    time.textContent = clock(date);
    time.title = date.toString();
  }
}

// --- Charts

const charts = new Map();

function stacked(series) {
  let sum = null;
  return series.map(({ y }) => (sum = y.map((value, n) => value + (sum ? sum[n] : 0))));
}

const isAlone = ({ y }) => y.some((value, n) => value !== null && (y[n - 1] ?? null) === null && (y[n + 1] ?? null) === null);
// What a chart's plot is made for; while that stays the same only its data is set anew.
const likeness = ({ kind, unit, series }) => JSON.stringify([kind, unit, series.map((each) => [each.name, each.colour, isAlone(each)])]);
const columns = (chart) => [chart.x, ...(chart.kind === "bars" ? stacked(chart.series).reverse() : chart.series.map(({ y }) => y))];

function timeLabels(times) {
  const span = times.at(-1) - times[0];
  const format = span > 2 * 86400 ? { weekday: "short", day: "numeric" } : { hour: "2-digit", minute: "2-digit", hourCycle: "h23", ...(span < 600 && { second: "2-digit" }) };
  const labels = times.map((at) => new Date(at * 1000).toLocaleString([], format));
  return labels.map((label, n) => (label === labels[n - 1] ? "" : label));
}

function options(known) {
  const { chart, box } = known;
  const bars = chart.kind === "bars";
  const grid = { stroke: resolved("line"), width: 1 };
  const axis = { stroke: resolved("dim"), grid, ticks: { show: false }, font: `11px ${colour("sans")}`, gap: 6 };
  const values = units[chart.unit];
  const lines = chart.series.map((each) => {
    const line = { label: each.name, stroke: resolved(each.colour), width: bars ? 0 : 1.75, spanGaps: false, points: { show: !!each.points || isAlone(each), size: 5 } };
    if (each.dash) line.dash = [4, 3];
    if (each.fill) line.fill = resolved(each.colour).replace("rgb(", "rgba(").replace(")", ", 0.1)");
    if (bars) Object.assign(line, { fill: resolved(each.colour), paths: uPlot.paths.bars({ size: [0.82, 60, 1], align: -1 }), points: { show: false } });
    return line;
  });
  const highest = (_, low, high) => [0, chart.unit === "share" ? Math.min(1, Math.max(0.1, high * 1.15)) : Math.max(high * 1.1, chart.unit === "count" ? 4 : 0.01)];
  return {
    width: box.clientWidth,
    height: +box.dataset.height,
    legend: { show: false },
    padding: [8, 32, 0, 0],
    scales: { x: { time: true, range: () => [known.chart.x[0] - known.chart.step, known.chart.x.at(-1)] }, y: { range: highest } },
    axes: [
      { ...axis, space: 84, size: 26, grid: { show: false }, values: (_, times) => (times.length ? timeLabels(times) : []) },
      { ...axis, size: chart.unit === "seconds" ? 56 : 46, space: 34, values: (_, marks) => marks.map((mark) => (chart.unit === "count" && mark % 1 ? "" : values(mark))) },
    ],
    series: [{}, ...(bars ? lines.reverse() : lines)],
    cursor: { y: false, points: { show: !bars }, drag: { x: true, y: false, setScale: false }, sync: { key: "time" } },
    hooks: { setCursor: [(plot) => legend(known, plot.cursor.idx)], setSelect: [(plot) => choose(plot)] },
  };
}

function choose(plot) {
  const { left, width } = plot.select;
  if (width < 8) return;
  const address = new URL(location.href);
  address.searchParams.delete("range");
  address.searchParams.set("from", Math.round(plot.posToVal(left, "x") * 1000));
  address.searchParams.set("to", Math.round(plot.posToVal(left + width, "x") * 1000));
  location.assign(address);
}

function legend({ box, chart }, index) {
  const items = chart.series.map((each) => {
    const value = index == null ? null : each.y[index];
    const item = document.createElement("span");
    const dot = Object.assign(document.createElement("i"), { className: `dot f-${each.colour}${each.dash ? " dash" : ""}` });
    item.append(dot, each.name);
    if (value != null) item.append(Object.assign(document.createElement("b"), { textContent: units[chart.unit](value) }));
    return item;
  });
  if (index != null) items.unshift(Object.assign(document.createElement("span"), { textContent: clock(new Date(chart.x[index] * 1000)) }));
  $(".legend", box.parentNode).replaceChildren(...(chart.id === "trend" && index == null ? [] : items));
}

function draw(anew) {
  const source = $("#charts");
  const shown = new Map((source ? JSON.parse(source.textContent) : []).map((chart) => [chart.id, chart]));
  for (const [id, { plot, box, like }] of charts) {
    const lasts = shown.has(id) && box.isConnected && like === likeness(shown.get(id));
    if (lasts && !anew) continue;
    plot.destroy();
    charts.delete(id);
  }
  for (const [id, chart] of shown) {
    const box = $(`#chart-${id}`);
    const known = charts.get(id) || { box, like: likeness(chart) };
    known.chart = chart;
    box.style.height = `${box.dataset.height}px`;
    box.classList.toggle("none", !chart.series.length);
    if (!chart.series.length) {
      box.textContent = box.parentNode.dataset.empty;
    } else if (known.plot) {
      known.plot.setData(columns(chart));
    } else {
      box.textContent = "";
      known.plot = new uPlot(options(known), columns(chart), box);
      known.plot.root.setAttribute("role", "img");
      known.plot.root.setAttribute("aria-label", `Chart: ${chart.series.map((each) => each.name).join()}`);
      charts.set(id, known);
    }
    legend(known, known.plot?.cursor.idx);
  }
}

new ResizeObserver(() => {
  for (const { plot, box } of charts.values()) if (plot.width !== box.clientWidth) plot.setSize({ width: box.clientWidth, height: +box.dataset.height });
}).observe(document.body);

// --- Live: what the server would write now, made of what is there, so that focus, scroll, selection and whatever is
// open stay. What the script itself draws into (data-drawn) is the script's.

const keyOf = (node) => node.id || node.dataset?.key || (node.nodeName === "OPTION" && node.text) || "";

function become(old, fresh) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  if ("drawn" in old.dataset || (old.dateTime && old.dateTime === fresh.dateTime)) return;
  const mine = (name) => old.nodeName === "DETAILS" && name === "open";
  for (const { name, value } of fresh.attributes) if (!mine(name) && old.getAttribute(name) !== value) old.setAttribute(name, value);
  for (const { name } of [...old.attributes]) if (!mine(name) && !fresh.hasAttribute(name)) old.removeAttribute(name);
  const known = new Map([...old.childNodes].filter(keyOf).map((node) => [keyOf(node), node]));
  let at = old.firstChild;
  for (const next of [...fresh.childNodes]) {
    const found = keyOf(next) ? known.get(keyOf(next)) : at && !keyOf(at) ? at : null;
    if (found?.nodeName !== next.nodeName) {
      old.insertBefore(next, at);
      continue;
    }
    if (found === at) at = at.nextSibling;
    else old.insertBefore(found, at);
    become(found, next);
  }
  while (at) {
    const after = at.nextSibling;
    at.remove();
    at = after;
  }
}

let busy = false, again = false;
async function refresh() {
  again = busy;
  if (busy) return;
  busy = true;
  // Where the server is gone there is no text; when it is back it says what it has.
  const text = await fetch(location.href).then((answer) => (answer.ok || answer.status === 404 ? answer.text() : ""), () => "");
  busy = false;
  if (text) show(new DOMParser().parseFromString(text, "text/html"));
  if (again) refresh();
}

function show(fresh) {
  const focused = document.activeElement;
  document.title = fresh.title;
  become($("#page"), fresh.getElementById("page"));
  writeTimes();
  draw();
  if (document.activeElement !== focused && focused.isConnected) focused.focus({ preventScroll: true });
}

let news;
function listen() {
  news?.close();
  const live = $("#live");
  const say = (text, lost) => {
    live.hidden = false;
    live.lastElementChild.textContent = text;
    live.classList.toggle("lost", lost);
  };
  news = new EventSource("/live");
  news.onopen = () => say("live", false);
  news.onerror = () => say("not connected", true);
  news.onmessage = ({ data }) => {
    if (data === $("#page").dataset.seen) return;
    live.classList.remove("new");
    requestAnimationFrame(() => live.classList.add("new"));
    refresh();
  };
}
// A browser holds six connections to one server: a page that nobody sees gives its own up.
addEventListener("pageshow", listen);
addEventListener("pagehide", () => news.close());
document.addEventListener("visibilitychange", () => (document.hidden ? news.close() : listen()));

// --- Choosing: with the mouse at once, with the keys when Enter or the button says so

let byKey = false;
document.addEventListener("pointerdown", () => (byKey = false), true);
document.addEventListener("keydown", (event) => {
  byKey = event.key !== "Enter";
  if (!byKey && event.target.matches("#filters select")) event.target.form.requestSubmit();
}, true);
document.addEventListener("change", ({ target }) => {
  if (!target.matches("#filters select")) return;
  if (byKey) $("#apply").hidden = false;
  else target.form.requestSubmit();
});
document.addEventListener("formdata", ({ formData }) => {
  for (const [name, value] of [...formData]) if (!value) formData.delete(name);
});
document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  await navigator.clipboard.writeText($(`#${button.dataset.copy}`).textContent);
  const said = button.textContent;
  button.textContent = "Copied";
  setTimeout(() => (button.textContent = said), 1500);
});
// What is typed into a filter of this page is shown at once; without scripts its button does that.
let typed;
document.addEventListener("input", ({ target }) => {
  const form = target.closest("form[data-typed]");
  if (!form) return;
  clearTimeout(typed);
  typed = setTimeout(() => {
    const asked = new URLSearchParams([...new FormData(form)].filter(([, value]) => value));
    history.replaceState(null, "", `?${asked}`);
    refresh();
  }, 150);
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") {
    $("#keys").open = false;
    document.activeElement.blur();
  }
  if (event.ctrlKey || event.metaKey || event.altKey || /INPUT|SELECT|TEXTAREA/.test(event.target.tagName)) return;
  if (event.key === "/") {
    event.preventDefault();
    $("#find").select();
    $("#find").focus();
  }
  if (event.key === "?") $("#keys").open = !$("#keys").open;
  const rows = $$(".turns a.row");
  if ((event.key === "j" || event.key === "k") && rows.length) {
    const at = rows.indexOf(document.activeElement) + (event.key === "j" ? 1 : -1);
    rows[Math.max(0, Math.min(rows.length - 1, at))].focus();
  }
});

const theme = $("#theme");
const stored = localStorage.getItem("theme");
if (stored) root.dataset.theme = stored;
theme.hidden = false;
theme.addEventListener("click", () => {
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  localStorage.setItem("theme", root.dataset.theme);
  draw(true);
});
for (const query of ["(prefers-color-scheme: dark)", "print"]) matchMedia(query).addEventListener("change", () => draw(true));

if ($("#apply")) $("#apply").hidden = true;
writeTimes();
draw();
