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
  seconds: (v) => (v >= 120 ? `${Math.floor(v / 60)} min` : v >= 1 ? `${+v.toPrecision(3)} s` : `${Math.round(v * 1000)} ms`),
};
const sameDay = (date) => date.toDateString() === new Date().toDateString();
const clock = (date) => date.toLocaleTimeString([], { hour12: false }) + (sameDay(date) ? "" : `, ${date.toLocaleDateString()}`);
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

function options(chart, box) {
  const bars = chart.kind === "bars";
  const grid = { stroke: resolved("line"), width: 1 };
  const axis = { stroke: resolved("dim"), grid, ticks: { show: false }, font: `11px ${colour("sans")}`, gap: 6 };
  const values = units[chart.unit];
  const lines = chart.series.map((each) => {
    const alone = each.y.some((value, n) => value !== null && (each.y[n - 1] ?? null) === null && (each.y[n + 1] ?? null) === null);
    const line = { label: each.name, stroke: resolved(each.colour), width: bars ? 0 : 1.75, spanGaps: false, points: { show: !!each.points || alone, size: 5 } };
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
    padding: [8, 18, 0, 0],
    scales: { x: { time: true, range: [chart.x[0] - chart.step, chart.x.at(-1)] }, y: { range: highest } },
    axes: [
      { ...axis, space: 70, size: 26, grid: { show: false }, values: (_, times) => times.map((at) => new Date(at * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hour12: false, ...(chart.x.at(-1) - chart.x[0] < 600 ? { second: "2-digit" } : {}) })) },
      { ...axis, size: chart.unit === "seconds" ? 56 : 46, space: 34, values: (_, marks) => marks.map((mark) => (chart.unit === "count" && mark % 1 ? "" : values(mark))) },
    ],
    series: [{}, ...(bars ? lines.reverse() : lines)],
    cursor: { y: false, points: { show: !bars }, drag: { x: true, y: false, setScale: false }, sync: { key: "time" } },
    hooks: { setCursor: [(plot) => legend(box, chart, plot.cursor.idx)], setSelect: [(plot) => choose(plot)] },
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

function legend(box, chart, index) {
  const list = $(".legend", box.parentNode) || box.parentNode.appendChild(Object.assign(document.createElement("figcaption"), { className: "legend" }));
  const items = chart.series.map((each) => {
    const value = index == null ? null : each.y[index];
    const item = document.createElement("span");
    const dot = Object.assign(document.createElement("i"), { className: `dot f-${each.colour}` });
    item.append(dot, each.name);
    if (value != null) item.append(Object.assign(document.createElement("b"), { textContent: units[chart.unit](value) }));
    return item;
  });
  if (index != null) items.unshift(Object.assign(document.createElement("span"), { textContent: clock(new Date(chart.x[index] * 1000)) }));
  list.replaceChildren(...(chart.id === "trend" && index == null ? [] : items));
}

function draw() {
  const source = $("#charts");
  if (!source) return;
  for (const chart of JSON.parse(source.textContent)) {
    const box = $(`#chart-${chart.id}`);
    if (!box) continue;
    const known = charts.get(chart.id);
    const names = chart.series.map((each) => each.name).join();
    box.classList.toggle("none", !chart.series.length);
    box.style.height = `${box.dataset.height}px`;
    if (!chart.series.length) {
      known?.plot.destroy();
      charts.delete(chart.id);
      box.textContent = box.dataset.empty || "Nothing in this time range.";
      $(".legend", box.parentNode)?.remove();
      continue;
    }
    const columns = chart.kind === "bars" ? stacked(chart.series).reverse() : chart.series.map((each) => each.y);
    known?.plot.destroy();
    box.textContent = "";
    const plot = new uPlot(options(chart, box), [chart.x, ...columns], box);
    plot.root.setAttribute("role", "img");
    plot.root.setAttribute("aria-label", `Chart: ${names}`);
    charts.set(chart.id, { plot, box, names });
    legend(box, chart, null);
  }
}

new ResizeObserver(() => {
  for (const { plot, box } of charts.values()) if (plot.width !== box.clientWidth) plot.setSize({ width: box.clientWidth, height: +box.dataset.height });
}).observe(document.body);

// --- Live

let busy = false, stale = false;
async function refresh() {
  if (busy || document.hidden || (getSelection() && String(getSelection()))) return void (stale = true);
  busy = true;
  stale = false;
  try {
    const answer = await fetch(location.href);
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    const parts = $$("[data-live]");
    if (parts.some((part) => !fresh.getElementById(part.id))) return void location.reload(); // the first telemetry came
    for (const part of parts) {
      const next = fresh.getElementById(part.id);
      if (part.innerHTML === next.dataset.was || next.innerHTML === part.dataset.was) continue;
      const open = new Set($$("details[open]", part).map((each) => $$("details", part).indexOf(each)));
      part.dataset.was = next.innerHTML;
      part.innerHTML = next.innerHTML;
      $$("details", part).forEach((each, n) => open.has(n) && (each.open = true));
      writeTimes(part);
    }
    draw();
  } finally {
    busy = false;
  }
}

function listen() {
  const live = $("#live");
  const news = new EventSource("/live");
  const say = (text, lost) => {
    live.hidden = false;
    live.lastElementChild.textContent = text;
    live.classList.toggle("lost", lost);
  };
  news.onopen = () => say("live", false);
  news.onerror = () => say("not connected", true);
  news.onmessage = () => {
    live.classList.remove("new");
    requestAnimationFrame(() => live.classList.add("new"));
    refresh();
  };
  document.addEventListener("visibilitychange", () => stale && !document.hidden && refresh());
  addEventListener("pagehide", () => news.close());
}

// --- Choosing

$("#filters")?.addEventListener("change", (event) => {
  const form = event.currentTarget;
  for (const field of form.elements) if (!field.value) field.disabled = true;
  form.requestSubmit();
});
document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  await navigator.clipboard.writeText($(`#${button.dataset.copy}`).textContent);
  const said = button.textContent;
  button.textContent = "Copied";
  setTimeout(() => (button.textContent = said), 1500);
});
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || /INPUT|SELECT|TEXTAREA/.test(event.target.tagName)) return;
  if (event.key === "/" && $(".search input")) {
    event.preventDefault();
    $(".search input").focus();
  }
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
  draw();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);

writeTimes();
draw();
listen();
