// Crosshair and tooltip for the charts, the theme button, and the episode filters.
// The page is complete without it; it reads nothing from anywhere and stores nothing.
"use strict";

const SVG = "http://www.w3.org/2000/svg";
const tip = document.getElementById("tip");

function showTip(text, event) {
  tip.textContent = text;
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const left = Math.min(event.clientX + 14, innerWidth - box.width - 8);
  const above = event.clientY - box.height - 14;
  tip.style.left = Math.max(8, left) + "px";
  tip.style.top = (above > 8 ? above : event.clientY + 20) + "px";
}

function draw(parent, tag, attributes) {
  const node = document.createElementNS(SVG, tag);
  for (const name in attributes) node.setAttribute(name, attributes[name]);
  return parent.appendChild(node);
}

function followPointer(chart) {
  const data = JSON.parse(chart.dataset.chart);
  const layer = draw(chart, "g", {});
  const clear = () => { layer.replaceChildren(); tip.hidden = true; };
  chart.addEventListener("pointermove", (event) => {
    const point = new DOMPoint(event.clientX, event.clientY)
      .matrixTransform(chart.getScreenCTM().inverse());
    let nearest = 0;
    data.x.forEach(([x], i) => {
      if (Math.abs(x - point.x) < Math.abs(data.x[nearest][0] - point.x)) nearest = i;
    });
    const [x, label] = data.x[nearest];
    const lines = [data.title + " " + label];
    layer.replaceChildren();
    draw(layer, "line", { class: "cursor", x1: x, x2: x, y1: data.top, y2: data.bottom });
    for (const series of data.series) {
      if (!series.y[nearest]) continue;
      const [y, value] = series.y[nearest];
      draw(layer, "circle", { class: "cursor-dot dot " + series.tone, cx: x, cy: y, r: 4 });
      lines.push(series.name + "  " + value);
    }
    showTip(lines.join("\n"), event);
  });
  chart.addEventListener("pointerleave", clear);
}

function explainPoints(point) {
  const title = point.querySelector("title");
  const text = title.textContent;
  point.addEventListener("pointermove", (event) => showTip(text, event));
  point.addEventListener("pointerleave", () => { tip.hidden = true; });
  // Ours replaces the browser's own tooltip; the text stays for screen readers.
  title.remove();
  point.setAttribute("aria-label", text);
}

function filterEpisodes(form) {
  const episodes = [...document.querySelectorAll("[data-search]")];
  const count = form.querySelector("output");
  const apply = () => {
    const words = form.elements.words.value.toLowerCase().split(/\s+/).filter(Boolean);
    const outcome = form.elements.outcome.value;
    let shown = 0;
    for (const episode of episodes) {
      const fits = words.every((word) => episode.dataset.search.includes(word))
        && (!outcome || episode.classList.contains(outcome));
      episode.hidden = !fits;
      shown += fits;
    }
    count.textContent = shown + " of " + episodes.length + " shown";
  };
  form.addEventListener("input", apply);
  form.addEventListener("submit", (event) => event.preventDefault());
  apply();
}

document.querySelectorAll("[data-chart]").forEach(followPointer);
document.querySelectorAll(".point").forEach(explainPoints);
document.querySelectorAll("form.filters").forEach(filterEpisodes);

const button = document.getElementById("theme");
button.hidden = false;
button.addEventListener("click", () => {
  const root = document.documentElement;
  const dark = getComputedStyle(root).colorScheme === "dark"
    || (root.dataset.theme === undefined && matchMedia("(prefers-color-scheme: dark)").matches);
  root.dataset.theme = dark ? "light" : "dark";
});
