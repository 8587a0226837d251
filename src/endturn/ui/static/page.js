"use strict";
// Updates the page live, shows the values under the pointer, converts times to the local time zone, and submits filters
// when they change. The pages, charts and tables are complete without it. The server formats numbers and durations.

const root = document.documentElement;
const $ = (selector, from = document) => from.querySelector(selector);
const $$ = (selector, from = document) => [...from.querySelectorAll(selector)];

// --- Times, in the local time zone

const labels = {
  second: { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" },
  minute: { hour: "2-digit", minute: "2-digit", hourCycle: "h23" },
  day: { month: "short", day: "numeric" },
  month: { year: "numeric", month: "short" },
};
const write = Object.fromEntries(Object.entries(labels).map(([name, format]) => [name, new Intl.DateTimeFormat([], format)]));
const today = () => new Date().toDateString();
const clock = (date, day = today()) => write.second.format(date) + (date.toDateString() === day ? "" : `, ${date.toLocaleDateString()}`);
function label(date, precision) {
  // Ticks of days are at midnight UTC, so the label has the hour if that is not midnight here.
  const hour = precision === "day" && (date.getHours() || date.getMinutes()) ? `, ${write.minute.format(date)}` : "";
  return write[precision].format(date) + hour;
}
function writeTimes(from = document) {
  root.dataset.zone = "local";
  const day = today();
  for (const time of $$("time[datetime]", from)) {
    const date = new Date(time.dateTime);
    time.textContent = clock(date, day);
    time.title = date.toString();
  }
  for (const tick of $$("[data-at]", from)) tick.textContent = label(new Date(+tick.dataset.at), tick.dataset.precision);
}

// --- Charts: the values under the pointer, from the chart's table, and the selection of a time range by dragging

const element = (name, className, ...children) => {
  const node = Object.assign(document.createElement(name), { className });
  node.append(...children);
  return node;
};
const duration = ({ dataset }) => dataset.step * dataset.steps;
const partAt = (chart, time) => (time - chart.dataset.start) / duration(chart);
function timeAt(chart, x) {
  const { left, width } = $(".hover", chart).getBoundingClientRect();
  return +chart.dataset.start + Math.max(0, Math.min(1, (x - left) / width)) * duration(chart);
}
function stepAt({ dataset: { kind, start, step, steps } }, time) {
  const at = (time - start) / step;
  return Math.max(0, Math.min(steps - 1, kind === "bars" ? Math.floor(at) : Math.round(at) - 1));
}

function readout(chart, step) {
  const figure = chart.closest("figure"), box = element("div", "readout");
  const end = new Date(+chart.dataset.start + (step + 1) * chart.dataset.step);
  box.append(element("b", "", clock(end)));
  const cells = $$(`tr[data-step="${step}"] td`, figure), marks = $$(".legend i", figure);
  $$("thead .n", figure).forEach((name, n) => {
    const value = cells[n]?.textContent;
    if (value && value !== "–" && (value !== "0" || chart.dataset.kind === "line"))
      box.append(element("span", "", marks[n].cloneNode(), name.textContent, element("b", "", value)));
  });
  return box;
}

let pointer = null; // the chart and the time under the pointer, and from when on a range is dragged
function point() {
  for (const chart of $$(".chart")) {
    const layer = $(".hover", chart);
    layer.replaceChildren();
    if (!pointer) continue;
    const step = stepAt(chart, pointer.time), part = (step + (chart.dataset.kind === "bars" ? 0.5 : 1)) / chart.dataset.steps;
    if (partAt(chart, pointer.time) > 1 || partAt(chart, pointer.time) < 0) continue;
    const cross = element("i", "cross");
    cross.style.left = `${part * 100}%`;
    layer.append(cross);
    if (chart !== pointer.chart) continue;
    const box = readout(chart, step);
    if (part < 0.5) box.style.left = `calc(${part * 100}% + 12px)`;
    else box.style.right = `calc(${(1 - part) * 100}% + 12px)`;
    layer.append(box);
    if (pointer.since === undefined) continue;
    const [from, to] = [pointer.since, pointer.time].sort((a, b) => a - b).map((time) => partAt(chart, time) * 100);
    const chosen = element("i", "chosen");
    chosen.style.left = `${from}%`;
    chosen.style.width = `${to - from}%`;
    layer.append(chosen);
  }
}
document.addEventListener("pointermove", ({ target, clientX }) => {
  const chart = pointer?.since === undefined ? target.closest?.(".chart") : pointer.chart;
  if (!chart && !pointer) return;
  pointer = chart ? { ...pointer, chart, time: timeAt(chart, clientX) } : null;
  point();
});
document.documentElement.addEventListener("pointerleave", () => {
  pointer = null;
  point();
});
document.addEventListener("pointerdown", (event) => {
  const layer = event.target.closest(".hover");
  if (!layer || event.button || event.pointerType === "touch") return;
  event.preventDefault();
  const chart = layer.closest(".chart"), time = timeAt(chart, event.clientX);
  pointer = { chart, time, since: time, from: event.clientX };
});
document.addEventListener("pointerup", ({ clientX }) => {
  if (pointer?.since === undefined) return;
  const { chart, since, from } = pointer;
  const range = [since, timeAt(chart, clientX)].map(Math.round).sort((a, b) => a - b);
  pointer = { chart, time: range[1] };
  point();
  if (Math.abs(clientX - from) < 8) return;
  const address = new URL(location.href);
  address.searchParams.delete("range");
  address.searchParams.set("from", range[0]);
  address.searchParams.set("to", range[1]);
  location.assign(address);
});

// --- Live updates: the nodes of the page are changed into those of a new response, so that focus, scroll position,
// selection and open details stay. Nodes with data-drawn belong to the script, and are not updated.

const keyOf = (node) => node.id || node.dataset?.key || (node.nodeName === "OPTION" && node.text) || "";

function update(old, fresh) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  if ("drawn" in old.dataset || (old.dateTime && old.dateTime === fresh.dateTime)) return;
  const mine = (name) => old.nodeName === "DETAILS" && name === "open";
  for (const { name, value } of fresh.attributes) if (!mine(name) && old.getAttribute(name) !== value) old.setAttribute(name, value);
  for (const { name } of [...old.attributes]) if (!mine(name) && !fresh.hasAttribute(name)) old.removeAttribute(name);
  const oldByKey = new Map([...old.childNodes].filter(keyOf).map((node) => [keyOf(node), node]));
  let at = old.firstChild;
  for (const next of [...fresh.childNodes]) {
    const match = keyOf(next) ? oldByKey.get(keyOf(next)) : at && !keyOf(at) ? at : null;
    if (match?.nodeName !== next.nodeName) {
      old.insertBefore(next, at);
      continue;
    }
    if (match === at) at = at.nextSibling;
    else old.insertBefore(match, at);
    update(match, next);
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
  // Without a server there is no text; once it is back, its first event causes a refresh.
  const text = await fetch(location.href).then((answer) => (answer.ok || answer.status === 404 ? answer.text() : ""), () => "");
  busy = false;
  if (text) show(new DOMParser().parseFromString(text, "text/html"));
  if (again) refresh();
}

function show(fresh) {
  const focused = document.activeElement;
  document.title = fresh.title;
  update($("#page"), fresh.getElementById("page"));
  writeTimes();
  point();
  if (document.activeElement !== focused && focused.isConnected) focused.focus({ preventScroll: true });
}

let source;
function listen() {
  source?.close();
  const live = $("#live");
  const showState = (text, isLost) => {
    live.hidden = false;
    live.lastElementChild.textContent = text;
    live.classList.toggle("lost", isLost);
  };
  source = new EventSource("/live");
  source.onopen = () => showState("live", false);
  source.onerror = () => showState("not connected", true);
  source.onmessage = ({ data }) => {
    if (data === $("#page").dataset.seen) return;
    live.classList.remove("new");
    requestAnimationFrame(() => live.classList.add("new"));
    refresh();
  };
}
// A browser allows six connections to one server, so a hidden page closes its own.
addEventListener("pageshow", listen);
addEventListener("pagehide", () => source.close());
document.addEventListener("visibilitychange", () => (document.hidden ? source.close() : listen()));

// --- Filters: a choice with the mouse applies at once, one with the keyboard after Enter or the button

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
  const caption = button.textContent;
  button.textContent = "Copied";
  setTimeout(() => (button.textContent = caption), 1500);
});
// Text in a filter applies while it is typed; without scripts, its button applies it.
let typingTimer;
document.addEventListener("input", ({ target }) => {
  const form = target.closest("form[data-typed]");
  if (!form) return;
  clearTimeout(typingTimer);
  typingTimer = setTimeout(() => {
    const query = new URLSearchParams([...new FormData(form)].filter(([, value]) => value));
    history.replaceState(null, "", `?${query}`);
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
});

if ($("#apply")) $("#apply").hidden = true;
writeTimes();
