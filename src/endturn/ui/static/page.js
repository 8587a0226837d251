"use strict";
// Keeps the page current, shows the values under the pointer, writes times in the reader's zone, and makes choosing
// quick. Without it the pages, their charts and tables are complete. Numbers and durations are as the server wrote them.

const root = document.documentElement;
const $ = (selector, from = document) => from.querySelector(selector);
const $$ = (selector, from = document) => [...from.querySelectorAll(selector)];

// --- Times, in the reader's zone

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
  // The server's days begin in UTC: where the reader's begin at another hour, it is said.
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
  for (const each of $$("[data-at]", from)) each.textContent = label(new Date(+each.dataset.at), each.dataset.precision);
}

// --- Charts: the values under the pointer, as the table of the chart has them, and a time range that is dragged

const element = (name, className, ...children) => {
  const made = Object.assign(document.createElement(name), { className });
  made.append(...children);
  return made;
};
const whole = ({ dataset }) => dataset.step * dataset.steps;
const partAt = (chart, time) => (time - chart.dataset.start) / whole(chart);
function timeAt(chart, x) {
  const { left, width } = $(".hover", chart).getBoundingClientRect();
  return +chart.dataset.start + Math.max(0, Math.min(1, (x - left) / width)) * whole(chart);
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

let pointed = null; // the chart and the time that are pointed at, and from when on a range is dragged
function point() {
  for (const chart of $$(".chart")) {
    const layer = $(".hover", chart);
    layer.replaceChildren();
    if (!pointed) continue;
    const step = stepAt(chart, pointed.time), part = (step + (chart.dataset.kind === "bars" ? 0.5 : 1)) / chart.dataset.steps;
    if (partAt(chart, pointed.time) > 1 || partAt(chart, pointed.time) < 0) continue;
    const cross = element("i", "cross");
    cross.style.left = `${part * 100}%`;
    layer.append(cross);
    if (chart !== pointed.chart) continue;
    const box = readout(chart, step);
    if (part < 0.5) box.style.left = `calc(${part * 100}% + 12px)`;
    else box.style.right = `calc(${(1 - part) * 100}% + 12px)`;
    layer.append(box);
    if (pointed.since === undefined) continue;
    const [from, to] = [pointed.since, pointed.time].sort((a, b) => a - b).map((time) => partAt(chart, time) * 100);
    const chosen = element("i", "chosen");
    chosen.style.left = `${from}%`;
    chosen.style.width = `${to - from}%`;
    layer.append(chosen);
  }
}
document.addEventListener("pointermove", ({ target, clientX }) => {
  const chart = pointed?.since === undefined ? target.closest?.(".chart") : pointed.chart;
  if (!chart && !pointed) return;
  pointed = chart ? { ...pointed, chart, time: timeAt(chart, clientX) } : null;
  point();
});
document.documentElement.addEventListener("pointerleave", () => {
  pointed = null;
  point();
});
document.addEventListener("pointerdown", (event) => {
  const layer = event.target.closest(".hover");
  if (!layer || event.button || event.pointerType === "touch") return;
  event.preventDefault();
  const chart = layer.closest(".chart"), time = timeAt(chart, event.clientX);
  pointed = { chart, time, since: time, from: event.clientX };
});
document.addEventListener("pointerup", ({ clientX }) => {
  if (pointed?.since === undefined) return;
  const { chart, since, from } = pointed;
  const range = [since, timeAt(chart, clientX)].map(Math.round).sort((a, b) => a - b);
  pointed = { chart, time: range[1] };
  point();
  if (Math.abs(clientX - from) < 8) return;
  const address = new URL(location.href);
  address.searchParams.delete("range");
  address.searchParams.set("from", range[0]);
  address.searchParams.set("to", range[1]);
  location.assign(address);
});

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
  point();
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
});

if ($("#apply")) $("#apply").hidden = true;
writeTimes();
