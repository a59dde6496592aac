"use strict";
const fields = [...document.querySelectorAll("input[data-path]")], done = document.getElementById("done");
const known = new Set([...document.querySelectorAll("#classes option")].map(option => option.value));
const quoted = text => /[",\n\r]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
const table = () => ["path,label", ...fields.map(field => `${quoted(field.dataset.path)},${quoted(field.value.trim())}`)].join("\n") + "\n";
const count = () => {
  let filled = 0, strange = 0;
  for (const field of fields) {
    const value = field.value.trim(), wrong = value !== "" && !known.has(value);
    field.classList.toggle("wrong", wrong);
    filled += value !== "";
    strange += wrong;
  }
  done.textContent = `${filled} of ${fields.length} labelled` + (strange ? `, ${strange} not among the classes` : "");
};
addEventListener("input", count);
document.getElementById("save").addEventListener("click", () => {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([table()], {type: "text/csv"}));
  link.download = "labels.csv";
  link.click();
});
count();
