// Order of drawing, controls, printing.
function comparisonTasks() {
  const pipelines = compared();
  const rows = judged(pipelines);
  const front = onFront(rows);
  return { table: () => drawTable(rows, front), pareto: () => drawPareto(rows, front), "over-time": () => drawOverTime(rows),
    boxes: () => drawBoxes(rows), triggers: () => drawTriggers(pipelines), samples: () => drawSamples(pipelines) };
}

function singleTasks() {
  const p = data.pipelines[state.focus];
  byId("single").textContent = p ? `Pipeline ${p.label}` : "No pipeline has run";
  byId("slices-section").hidden = !p || !judgedSlices(p).length;
  return { live: () => drawLive(p), matrix: () => drawMatrix(p), confusion: () => drawConfusion(p), "slice-table": () => drawSliceTable(p),
    slices: () => drawSlices(p), decisions: () => drawDecisions(p), stages: () => drawStages(p) };
}

// One plot at a time, so that the page answers in between, and only what is on the screen or close to it; a newer wish for
// the same plot replaces an older one.
const waiting = new Map();
const near = new Set(["table", "live", "confusion", "slice-table"]);
let drawing = false;
function draw(tasks) {
  Object.entries(tasks).forEach(([name, task]) => { waiting.set(name, task); byId(name).dataset.drawn = "no"; });
  goOn();
}

function goOn() {
  const left = [...waiting.keys()].some((name) => near.has(name));
  document.body.dataset.complete = left ? "no" : "yes";
  if (left && !drawing) {
    drawing = true;
    requestAnimationFrame(() => setTimeout(drawNext));
  }
}

function drawNext() {
  drawing = false;
  const next = [...waiting].find(([name]) => near.has(name));
  if (next) {
    waiting.delete(next[0]);
    next[1]();
    byId(next[0]).dataset.drawn = "yes";
  }
  goOn();
}

const observer = new IntersectionObserver((entries) => {
  entries.forEach((entry) => (entry.isIntersecting ? near.add(entry.target.id) : near.delete(entry.target.id)));
  goOn();
}, { rootMargin: "200px" });

function drawEverything() {
  waiting.forEach((_, name) => near.add(name));
  while (waiting.size) drawNext();
}

const drawComparison = () => draw(comparisonTasks());
const drawSingle = () => draw(singleTasks());
const drawAll = () => draw({ ...comparisonTasks(), ...singleTasks() });

function options(id, names, chosen, changed) {
  const select = byId(id);
  names.forEach((name, i) => { const option = element("option", name); option.value = i; select.append(option); });
  select.value = chosen;
  select.addEventListener("change", () => changed(Number(select.value)));
}

function printed(now) {
  printing = now;
  const names = compared().map((p) => p.label).join(", ");
  byId("chosen").textContent = `Metric ${metric().name}, ${compositeText()} model, cost ${COSTS[state.cost].label}; pipelines ${names}.`;
  drawAll();
  if (now) drawEverything();
}

function prepare() {
  options("metric", data.metrics.map((m) => m.name), 0, (i) => { state.metric = i; drawAll(); });
  options("focus", data.pipelines.map((p) => p.label), 0, (i) => { state.focus = i; drawSingle(); });
  byId("composite").addEventListener("change", (event) => { state.composite = event.target.value; drawAll(); });
  byId("cost").addEventListener("change", (event) => { state.cost = event.target.value; drawComparison(); });
  byId("spread").addEventListener("change", (event) => { state.spread = event.target.checked; drawComparison(); });
  byId("spread-label").hidden = !severalSeeds;
  data.pipelines.forEach((pipeline, i) => {
    const box = element("input");
    box.type = "checkbox";
    box.checked = true;
    box.addEventListener("change", () => { box.checked ? state.chosen.add(i) : state.chosen.delete(i); drawComparison(); });
    const swatch = swatchOf(pipeline);
    darkPage.addEventListener("change", () => { swatch.style.background = colourOf(pipeline); });
    const label = element("label");
    label.append(box, " ", swatch, pipeline.label);
    byId("pipelines").append(label);
  });
  const running = data.pipelines.filter((p) => !["finished", "ended"].includes(p.state)).map((p) => p.label);
  const notes = [`${data.pipelines.length} runs, ${data.starts.length} intervals.`];
  if (data.missing.length) notes.push(`Never ran: ${data.missing.join(", ")}.`);
  if (running.length) notes.push(`Still running: ${running.join(", ")}; what is shown is what has been scored so far.`);
  byId("note").textContent = notes.join(" ");
  document.querySelectorAll(".plot").forEach((plot) => observer.observe(plot));
  darkPage.addEventListener("change", drawAll);
  window.addEventListener("beforeprint", () => printed(true));
  window.addEventListener("afterprint", () => printed(false));
  drawAll();
}

prepare();
