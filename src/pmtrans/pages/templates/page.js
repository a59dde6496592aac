"use strict";
// Thumbnails on the map: the nearest point within reach, so that fingers hit it too.
(() => {
  const maps = document.getElementById("maps"), tip = document.getElementById("tip");
  if (!maps) return;
  const data = JSON.parse(document.getElementById("points").textContent);
  const [picture, text] = tip.children, side = +maps.dataset.side || 0, columns = +maps.dataset.columns;
  const SHOWN = 96;
  let marked = [];
  if (side) {
    picture.style.backgroundSize = `${columns * SHOWN}px ${maps.dataset.rows * SHOWN}px`;
  } else picture.hidden = true;
  const hide = () => { tip.hidden = true; marked.forEach(c => c.classList.remove("on")); marked = []; };
  const show = event => {
    const svg = event.target.closest("svg[data-panel]");
    if (!svg) return hide();
    const box = svg.getBoundingClientRect(), scale = 1000 / box.width, panel = data.panels[svg.dataset.panel];
    const x = (event.clientX - box.left) * scale, y = (event.clientY - box.top) * scale;
    let best = -1, least = (16 * scale) ** 2;
    panel.points.forEach(([px, py], i) => {
      const d = (px - x) ** 2 + (py - y) ** 2;
      if (d < least) { least = d; best = i; }
    });
    if (best < 0) return hide();
    hide();
    maps.querySelectorAll("svg").forEach(s => { const c = s.querySelectorAll("circle")[best]; c.classList.add("on"); marked.push(c); });
    if (side) picture.style.backgroundPosition = `${-(best % columns) * SHOWN}px ${-Math.floor(best / columns) * SHOWN}px`;
    const label = data.classes[data.truth[best]], guess = `${data.classes[panel.predicted[best]]} (${panel.confidence[best]} %)`;
    text.textContent = best < data.source ? `source · ${label}\npredicted ${guess}`
      : `target · predicted ${guess}` + (label === undefined ? "" : `\nlabel ${label}`);
    tip.hidden = false;
    const width = tip.offsetWidth, height = tip.offsetHeight;
    tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - width - 4)) + "px";
    tip.style.top = (event.clientY + height + 20 > innerHeight ? event.clientY - height - 10 : event.clientY + 14) + "px";
  };
  maps.addEventListener("pointermove", show);
  maps.addEventListener("pointerdown", show);
  maps.addEventListener("pointerleave", hide);
  addEventListener("scroll", hide, {passive: true});
  document.getElementById("by-class").addEventListener("change", e => maps.classList.toggle("by-class", e.target.checked));
})();
// Tables sort by a click on a column's head.
document.querySelectorAll("table.sortable th").forEach(head => head.addEventListener("click", () => {
  const column = head.cellIndex, body = head.closest("table").tBodies[0], up = head.dataset.up !== "1";
  head.parentNode.querySelectorAll("th").forEach(h => delete h.dataset.up);
  head.dataset.up = up ? "1" : "0";
  const value = row => row.cells[column].textContent.trim(), number = t => t === "–" ? -Infinity : parseFloat(t.replace(/\u202f/g, ""));
  const rows = [...body.rows].sort((a, b) => head.classList.contains("n") ? (number(value(a)) - number(value(b)) || 0) : value(a).localeCompare(value(b)));
  body.append(...(up ? rows : rows.reverse()));
}));
// Paper cannot be opened: everything folded is printed.
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach(d => { d.open = true; }));
