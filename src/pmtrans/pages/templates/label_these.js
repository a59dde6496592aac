"use strict";
const fields = [...document.querySelectorAll("input[data-path]")], done = document.getElementById("done");
const known = new Set([...document.querySelectorAll("#classes option")].map(option => option.value));
const keys = new Map([...document.querySelectorAll("#keys button")].map(button => [button.dataset.key, button.dataset.class]));
const quoted = text => /[",\n\r]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
const table = () => ["path,label", ...fields.map(field => `${quoted(field.dataset.path)},${quoted(field.value.trim())}`)].join("\n") + "\n";

// entries are kept under the paths of the images: another page has its own
const place = "pmtrans-labels " + fields.map(field => field.dataset.path).join("\n");
let kept = true;
const keep = () => {
  try { localStorage.setItem(place, JSON.stringify(fields.map(field => field.value))); kept = true; } catch { kept = false; }
};
const restore = () => {
  try {
    const values = JSON.parse(localStorage.getItem(place) ?? "[]");
    fields.forEach((field, index) => { field.value = typeof values[index] === "string" ? values[index] : ""; });
  } catch { kept = false; }
};

const count = () => {
  let filled = 0, strange = 0;
  for (const field of fields) {
    const value = field.value.trim(), wrong = value !== "" && !known.has(value);
    field.classList.toggle("wrong", wrong);
    filled += value !== "";
    strange += wrong;
  }
  done.textContent = `${filled} of ${fields.length} labelled` + (strange ? `, ${strange} not among the classes` : "")
    + (kept ? "" : ", not kept in this browser: save often");
};

let current = 0;
const undone = [], before = fields.map(() => "");  // what each field held before its last change
const show = index => {
  if (!fields.length) return;
  current = Math.min(Math.max(index, 0), fields.length - 1);
  fields.forEach((field, at) => field.closest("figure").classList.toggle("current", at === current));
  fields[current].closest("figure").scrollIntoView({block: "nearest"});
};
const changed = index => {
  if (fields[index].value === before[index]) return;
  undone.push([index, before[index]]);
  before[index] = fields[index].value;
  keep();
  count();
};
const label = name => {
  if (!fields.length) return;
  fields[current].value = name;
  changed(current);
  const free = fields.map((_, at) => at).filter(at => fields[at].value.trim() === "");
  show(free.find(at => at > current) ?? free[0] ?? current);
};
const undo = () => {
  const last = undone.pop();
  if (last === undefined) return;
  fields[last[0]].value = before[last[0]] = last[1];
  keep();
  count();
  show(last[0]);
};

addEventListener("input", event => { keep(); count(); show(fields.indexOf(event.target)); });
fields.forEach((field, index) => {
  field.addEventListener("change", () => changed(index));
  field.addEventListener("focus", () => show(index));
  field.addEventListener("keydown", event => {
    if (event.key !== "Enter" && event.key !== "Escape") return;
    field.blur();
    if (event.key === "Enter") show(index + 1);
  });
});
addEventListener("keydown", event => {
  if (event.target.matches("input") || event.ctrlKey || event.metaKey || event.altKey) return;
  const step = {ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1}[event.key];
  if (step !== undefined) show(current + step);
  else if (event.key === "Backspace") undo();
  else if (keys.has(event.key.toLowerCase())) label(keys.get(event.key.toLowerCase()));
  else return;
  event.preventDefault();
});
for (const button of document.querySelectorAll("#keys button"))
  button.addEventListener("click", () => { label(button.dataset.class); button.blur(); });
document.getElementById("undo").addEventListener("click", event => { undo(); event.target.blur(); });
document.getElementById("save").addEventListener("click", () => {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([table()], {type: "text/csv"}));
  link.download = "labels.csv";
  link.click();
});
restore();
fields.forEach((field, index) => { before[index] = field.value; });
count();
show(Math.max(fields.findIndex(field => field.value.trim() === ""), 0));
