// What all parts share: elements, the switches, and how numbers are shown. Text reaches the page as text only.
const data = JSON.parse(document.getElementById("data").textContent);
const look = { units: "iec", zone: "utc", theme: "auto" };
const redraws = [];
const onLook = (redraw) => redraws.push(redraw);
const dark = matchMedia("(prefers-color-scheme: dark)");

function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "text") element.textContent = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}
const host = (name) => document.querySelector(`[data-section="${name}"]`);
const say = (text) => { document.getElementById("live").textContent = text; };

const SCALES = {
  iec: [1024, ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB"]],
  si: [1000, ["bytes", "kB", "MB", "GB", "TB", "PB"]],
};
function bytes(count) {
  if (count === null || count === undefined) return "";
  const [base, names] = SCALES[look.units];
  let value = count, unit = 0;
  while (value >= base && unit < names.length - 1) { value /= base; unit += 1; }
  if (!unit) return `${Math.round(count)} ${Math.round(count) === 1 ? "byte" : "bytes"}`;
  return `${value < 10 ? value.toFixed(2) : value < 100 ? value.toFixed(1) : value.toFixed(0)} ${names[unit]}`;
}
const grouping = new Intl.NumberFormat("en-US");
const count = (number) => (number === null || number === undefined ? "" : grouping.format(number));
const share = (part, whole) => (whole ? `${(100 * part / whole).toFixed(part && part * 1000 < whole ? 2 : 1)} %` : "");
function time(ms, precise = true) {
  if (ms === null || ms === undefined || ms < 0 || Math.abs(ms) > 8.64e15) return "–";
  const at = new Date(ms);
  if (look.zone === "utc") return at.toISOString().replace("T", " ").replace(/\.\d+Z$/, precise ? "Z" : "Z");
  const two = (number) => String(number).padStart(2, "0");
  const offset = -at.getTimezoneOffset();
  const zone = `${offset < 0 ? "-" : "+"}${two(Math.floor(Math.abs(offset) / 60))}:${two(Math.abs(offset) % 60)}`;
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}${zone}`;
}
function span(ms) {
  if (ms === null || ms === undefined) return "";
  for (const [unit, length] of [["d", 86400000], ["h", 3600000], ["min", 60000]]) {
    if (Math.abs(ms) >= 2 * length || (ms && ms % length === 0)) return `${Math.round(ms / length)} ${unit}`;
  }
  return `${Math.round(ms / 1000)} s`;
}
const FORMS = { bytes, count, time, span, share: (value) => share(value, 1), text: (value) => (value === null ? "" : String(value)), offset: (value) => (value === null ? "" : String(value)) };

function applyLook() {
  inks.clear();
  for (const element of document.querySelectorAll("data[data-unit]")) {
    element.textContent = FORMS[element.dataset.unit](Number(element.value));
  }
  for (const redraw of redraws) redraw();
}
const inks = new Map();
function color(name) {
  if (!inks.has(name)) inks.set(name, getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim());
  return inks.get(name);
}

function startSwitches() {
  const form = document.getElementById("switches");
  form.hidden = false;
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("change", (event) => {
    look[event.target.name] = event.target.value;
    if (look.theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = look.theme;
    applyLook();
  });
  dark.addEventListener("change", applyLook);
}

async function copyText(text, button) {
  let copied = false;
  try {
    await navigator.clipboard.writeText(text);
    copied = true;
  } catch (error) {
    const area = make("textarea", { class: "sr", "aria-hidden": "true" });
    area.value = text;
    document.body.append(area);
    area.select();
    copied = document.execCommand("copy");
    area.remove();
    button.focus();
  }
  const before = button.dataset.label || (button.dataset.label = button.textContent);
  button.textContent = copied ? "Copied" : "Select it";
  say(copied ? "Copied" : "Could not copy: select the command");
  setTimeout(() => { button.textContent = before; }, 1500);
}
function startCopies() {
  for (const button of document.querySelectorAll("button[data-copy]")) {
    button.hidden = false;
    button.addEventListener("click", () => copyText(document.getElementById(button.dataset.copy).textContent, button));
  }
}

// A shared label that follows the pointer.
const tip = make("div", { class: "tip", hidden: true, "aria-hidden": "true" });
document.body.append(tip);
function showTip(text, x, y) {
  if (!text) { tip.hidden = true; return; }
  tip.textContent = text;
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - width - 4))}px`;
  tip.style.top = `${y + 18 + height > innerHeight ? Math.max(4, y - height - 12) : y + 18}px`;
}

// A canvas at the resolution of the screen, drawn when it comes into sight, is resized, or a switch changes.
const sight = new IntersectionObserver((entries) => {
  for (const entry of entries) if (entry.isIntersecting) { entry.target.inSight = true; paint(entry.target); }
}, { rootMargin: "200px" });
function paint(canvas) {
  const width = canvas.clientWidth, height = canvas.clientHeight, scale = devicePixelRatio || 1;
  if (!width || !height) return;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  canvas.draw(context, width, height);
}
const sizes = new ResizeObserver((entries) => {
  for (const entry of entries) if (entry.target.inSight) paint(entry.target);
});
function drawn(canvas, draw) {
  canvas.draw = draw;
  sight.observe(canvas);
  sizes.observe(canvas);
  onLook(() => canvas.inSight && paint(canvas));
  return canvas;
}
addEventListener("beforeprint", () => { for (const canvas of document.querySelectorAll("canvas")) if (canvas.draw) paint(canvas); });
