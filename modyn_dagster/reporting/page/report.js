"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
// Okabe and Ito (2008), then Tol's muted colours: told apart in every common kind of colour blindness as far as 20 can be.
const COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#332288", "#882255", "#44AA99", "#999933",
  "#117733", "#AA4499", "#88CCEE", "#661100", "#6699CC", "#DDCC77", "#CC6677", "#000000", "#777777", "#AA7744"];
const SHORTFALL = 0.1;
const MOST_BANDS = 3;
const SAMPLE_TIME = "sample time (UTC)";
const COSTS = {
  triggers: { label: "trainings", unit: "", of: (p) => p.trainEnds.length },
  samples: { label: "samples trained on", unit: "", of: (p) => p.samples.reduce((a, b) => a + b, 0) },
  seconds: { label: "seconds, all stages", unit: " s", of: (p) => p.totalSeconds },
  bytes: { label: "megabytes written (MB)", unit: " MB", of: (p) => p.bytes / 1e6 },
};
const byId = (id) => document.getElementById(id);
const state = { metric: 0, composite: "active", cost: "triggers", focus: 0, spread: true,
  chosen: new Set(data.pipelines.map((_, i) => i)) };
const mids = data.starts.map((start, i) => (start + data.ends[i]) / 2);

function matrixOf(pipeline, metric) {
  pipeline.decoded ??= {};
  if (!pipeline.decoded[metric]) {
    const packed = atob(pipeline.matrices[metric]);
    const bytes = new Uint8Array(packed.length);
    for (let i = 0; i < packed.length; i++) bytes[i] = packed.charCodeAt(i);
    pipeline.decoded[metric] = new Float32Array(bytes.buffer);
  }
  return pipeline.decoded[metric];
}

function seriesOf(pipeline) {
  const values = matrixOf(pipeline, metric().name);
  return pipeline[state.composite].map((model, i) => {
    const value = model < 0 ? NaN : values[model * data.starts.length + i];
    return Number.isFinite(value) ? value : null;
  });
}

const metric = () => data.metrics[state.metric] ?? { name: "score", lower: false };
const compared = () => [...state.chosen].sort((a, b) => a - b).map((i) => data.pipelines[i]);
const colourOf = (pipeline) => COLOURS[groups.indexOf(pipeline.group) % COLOURS.length];
const groups = [...new Set(data.pipelines.map((p) => p.group))];
const severalSeeds = groups.length < data.pipelines.length;
const mean = (values) => (values.length ? values.reduce((a, b) => a + b, 0) / values.length : null);
const text = (value, digits = 4) => (value === null || value === undefined ? "–" : value.toFixed(digits));
const count = (value) => value.toLocaleString("en-GB");

function shared(pipelines) {
  const all = pipelines.map(seriesOf);
  return data.starts.map((_, i) => pipelines.length > 0 && all.every((s, k) => s[i] !== null && pipelines[k].active[i] >= 0));
}

function shortfall(values) {
  const sorted = [...values].sort((a, b) => (metric().lower ? b - a : a - b));
  const share = sorted.length * SHORTFALL;
  let total = 0;
  sorted.forEach((value, i) => { total += value * Math.min(1, Math.max(0, share - i)); });
  return sorted.length ? total / share : null;
}

function judged(pipelines) {
  const among = shared(pipelines);
  return pipelines.map((pipeline) => {
    const series = seriesOf(pipeline);
    const values = series.filter((_, i) => among[i]);
    const own = series.filter((value, i) => value !== null && pipeline.active[i] >= 0);
    return { pipeline, series, values, score: mean(values), own: mean(own), nOwn: own.length,
      shortfall: shortfall(values), cost: COSTS[state.cost].of(pipeline) };
  });
}

function onFront(rows) {
  const sign = metric().lower ? -1 : 1;
  const beats = (a, b) => a.score !== null && a.cost <= b.cost && sign * a.score >= sign * b.score
    && (a.cost < b.cost || a.score !== b.score);
  return rows.map((row) => row.score !== null && !rows.some((other) => beats(other, row)));
}

function bundles(rows) {
  if (!state.spread || !severalSeeds) return rows.map((row) => ({ name: row.pipeline.label, rows: [row] }));
  const found = groups.map((group) => ({ name: group, rows: rows.filter((row) => row.pipeline.group === group) }));
  return found.filter((bundle) => bundle.rows.length).map((b) => (b.rows.length > 1 ? b : { name: b.rows[0].pipeline.label, rows: b.rows }));
}

function deviation(values) {
  if (values.length < 2 || values.includes(null)) return null;
  const middle = mean(values);
  return Math.sqrt(mean(values.map((v) => (v - middle) ** 2)) * values.length / (values.length - 1));
}

function loadPlotly() {
  const script = document.createElement("script");
  script.textContent = byId("plotly").textContent;
  document.head.append(script);
}

function show(id, traces, layout, empty) {
  if (!window.Plotly) loadPlotly();
  const base = { font: { size: 13, family: "system-ui, sans-serif" }, margin: { l: 75, r: 20, t: 46, b: 60 }, hovermode: "closest",
    legend: { font: { size: 12 }, orientation: "v" }, showlegend: true, paper_bgcolor: "#fff", plot_bgcolor: "#fff" };
  const axis = { gridcolor: "#e6e6e6", linecolor: "#999", zeroline: false, automargin: true, exponentformat: "SI" };
  if (layout.height) byId(id).style.height = `${layout.height}px`;
  const full = { ...base, ...layout, title: { text: layout.title, x: 0, xref: "paper", xanchor: "left", font: { size: 16 } },
    xaxis: { ...axis, ...layout.xaxis }, yaxis: { ...axis, ...layout.yaxis } };
  if (empty) {
    full.xaxis.showticklabels = full.yaxis.showticklabels = false;
    full.annotations = [{ text: empty, showarrow: false, xref: "paper", yref: "paper", x: 0.5, y: 0.5, font: { size: 15, color: "#555" } }];
  }
  Plotly.react(byId(id), traces, full, { responsive: true, displaylogo: false });
}

const timeAxis = () => ({ type: "date", title: { text: SAMPLE_TIME } });
const valueAxis = () => ({ title: { text: `${metric().name} (${metric().lower ? "lower" : "higher"} is better)` } });
const compositeText = () => (state.composite === "active" ? "currently active" : "currently trained");
const nothing = (rows) => (rows.some((r) => r.series.some((v) => v !== null)) ? "" : "no interval has been scored yet");

function element(tag, content, className) {
  const made = document.createElement(tag);
  if (content !== undefined) made.textContent = content;
  if (className) made.className = className;
  return made;
}

function drawTable(rows, front) {
  const table = byId("table");
  const header = element("tr");
  const extra = metric().name;
  ["pipeline", "state", "trainings", "samples trained on", "seconds", "MB written", `mean ${extra}, shared intervals`, `worst ${SHORTFALL * 100} %`,
    "mean over own intervals (number)", "retention of last model", "forgetting of last model", "regret in hindsight", "Pareto front"]
    .forEach((name) => header.append(element("th", name)));
  const lines = rows.map((row, i) => {
    const p = row.pipeline;
    const line = element("tr", undefined, front[i] ? "front" : "");
    const name = element("td");
    const swatch = element("span", undefined, "swatch");
    swatch.style.background = colourOf(p);
    name.append(swatch, p.label);
    const s = p.summaries[extra] ?? {};
    line.append(name);
    const failed = p.failed ? ` (${p.failed} more without a model)` : "";
    [p.state, `${p.trainEnds.length}${failed}`, count(COSTS.samples.of(p)), count(Math.round(p.totalSeconds * 10) / 10),
      p.bytes === null ? "–" : text(p.bytes / 1e6, 1), text(row.score), text(row.shortfall), `${text(row.own)} (${row.nOwn})`, text(s.retention), text(s.forgetting), text(s.regret), front[i] ? "yes" : ""]
      .forEach((cell) => line.append(element("td", cell)));
    return line;
  });
  bundles(rows).filter((b) => b.rows.length > 1).forEach((bundle) => {
    const line = element("tr");
    const spread = (of, digits) => {
      const values = bundle.rows.map(of);
      return values.includes(null) ? "–" : `${text(mean(values), digits)} ± ${text(deviation(values), digits)}`;
    };
    const megabytes = (r) => (r.pipeline.bytes === null ? null : r.pipeline.bytes / 1e6);
    const cells = [`${bundle.name}: mean of ${bundle.rows.length} seeds`, "", spread((r) => r.pipeline.trainEnds.length, 1),
      spread((r) => COSTS.samples.of(r.pipeline), 0), spread((r) => r.pipeline.totalSeconds, 1), spread(megabytes, 1),
      spread((r) => r.score), spread((r) => r.shortfall), spread((r) => r.own), "", "", "", ""];
    cells.forEach((cell) => line.append(element("td", cell)));
    lines.push(line);
  });
  table.replaceChildren(header, ...lines);
  const n = shared(compared()).filter(Boolean).length;
  byId("caption").textContent = rows.length === 0 ? "Choose a pipeline above." :
    `Shared: the ${n} of ${data.starts.length} intervals in which every chosen pipeline has an active model and a defined score.`;
}

function drawPareto(rows, front) {
  const cost = COSTS[state.cost];
  const traces = bundles(rows).map((bundle) => {
    const scores = bundle.rows.map((r) => r.score).filter((v) => v !== null);
    const costs = bundle.rows.filter((r) => r.score !== null).map((r) => r.cost);
    const bars = (values) => (values.length > 1 ? { type: "data", array: [deviation(values)], visible: true, thickness: 1.3 } : undefined);
    return { x: scores.length ? [mean(costs)] : [], y: scores.length ? [mean(scores)] : [], error_x: bars(costs), error_y: bars(scores),
      mode: "markers", name: bundle.name, marker: { size: 12, color: colourOf(bundle.rows[0].pipeline), line: { color: "#fff", width: 1 } },
      hovertemplate: `%{x:,.4~g}${cost.unit}, %{y:.4f}<extra>${bundle.name}</extra>` };
  });
  const best = rows.filter((_, i) => front[i]).sort((a, b) => a.cost - b.cost);
  traces.push({ x: best.map((r) => r.cost), y: best.map((r) => r.score), mode: "lines", line: { shape: "hv", color: "#666", dash: "dot" },
    name: state.spread && severalSeeds ? "Pareto front of single runs" : "Pareto front", hoverinfo: "skip" });
  show("pareto", traces, { title: "Cost against score", xaxis: { title: { text: cost.label }, rangemode: "tozero" },
    yaxis: valueAxis() }, rows.some((r) => r.score !== null) ? "" : "no shared interval has been scored yet");
}

// Confidence intervals of one run as a band; where there is none the band has a gap.
function band(row, colour) {
  const [low, high] = row.pipeline.bands[metric().name][state.composite];
  const edge = (values, fill) => ({ x: mids, y: values, mode: "lines", line: { width: 0 }, fill, fillcolor: `${colour}2b`,
    showlegend: fill !== "none", name: `confidence interval, ${row.pipeline.label}`, hoverinfo: "skip" });
  return [edge(low, "none"), edge(high, "tonexty")];
}

function drawOverTime(rows) {
  const bands = bundles(rows).length <= MOST_BANDS;
  const traces = bundles(rows).flatMap((bundle) => {
    const colour = colourOf(bundle.rows[0].pipeline);
    const at = mids.map((_, i) => bundle.rows.map((r) => r.series[i]));
    const whole = at.map((values) => (values.includes(null) ? null : mean(values)));
    const line = { x: mids, y: whole, mode: "lines+markers", name: bundle.name, line: { color: colour, width: 1.8 }, marker: { size: 4 },
      customdata: data.starts.map((s, i) => [isoDay(s), isoDay(data.ends[i])]),
      hovertemplate: `%{customdata[0]} – %{customdata[1]}: %{y:.4f}<extra>${bundle.name}</extra>` };
    if (bundle.rows.length < 2) return bands && bundle.rows[0].pipeline.bands[metric().name] ? [...band(bundle.rows[0], colour), line] : [line];
    const edge = (pick, fill) => ({ x: mids, y: at.map((v) => (v.includes(null) ? null : pick(...v))), mode: "lines", showlegend: false,
      line: { width: 0 }, fill, fillcolor: `${colour}33`, hoverinfo: "skip" });
    return [edge(Math.min, "none"), edge(Math.max, "tonexty"), line];
  });
  show("over-time", traces, { title: `Score of the ${compositeText()} model over time (middles of the intervals)`, xaxis: timeAxis(),
    yaxis: valueAxis() }, nothing(rows));
}

function drawBoxes(rows) {
  const traces = rows.map((row) => ({ type: "box", y: row.values, name: row.pipeline.label, boxmean: true, boxpoints: "outliers",
    marker: { color: colourOf(row.pipeline), size: 4 } }));
  show("boxes", traces, { title: `Scores over the shared intervals, ${compositeText()} model (dashed: mean)`,
    xaxis: { title: { text: "pipeline" }, tickfont: { size: 12 } }, yaxis: valueAxis() },
    rows.some((r) => r.values.length) ? "" : "no shared interval has been scored yet");
}

function drawTriggers(pipelines) {
  const traces = pipelines.map((p) => ({ x: p.trainEnds, y: p.trainEnds.map(() => p.label), mode: "markers", name: p.label,
    marker: { symbol: "line-ns-open", size: 13, color: colourOf(p), line: { width: 2 } }, customdata: p.samples, legendgroup: p.label,
    hovertemplate: "%{x}: trained on %{customdata:,} samples<extra>%{y}</extra>" }));
  // Scores of different policies share no unit; divided by their thresholds they do.
  const scored = pipelines.filter((p) => p.decisions?.thresholds.some((t) => t));
  scored.forEach((p) => {
    const d = p.decisions;
    traces.push({ x: d.times, y: d.scores.map((s, i) => (s === null || !d.thresholds[i] ? null : s / d.thresholds[i])), yaxis: "y2",
      mode: "lines", name: p.label, legendgroup: p.label, showlegend: false, line: { color: colourOf(p), width: 1.2 },
      hovertemplate: `%{x}: %{y:.3f} of its threshold<extra>${p.label}</extra>` });
  });
  if (scored.length) {
    traces.push({ x: [Math.min(...data.starts), Math.max(...data.ends)], y: [1, 1], yaxis: "y2", mode: "lines", name: "threshold",
      line: { color: "#666", dash: "dash", width: 1 }, hoverinfo: "skip" });
  }
  const rowsHeight = 150 + 22 * pipelines.length;
  const top = scored.length ? 220 / (rowsHeight + 220) : 0;
  show("triggers", traces, { title: `Triggers on the time line (last sample time of each training)${scored.length ? ", and the scores behind them" : ""}`,
    xaxis: { ...timeAxis(), anchor: "y" },
    yaxis: { type: "category", title: { text: "pipeline", standoff: 12 }, autorange: "reversed", dtick: 1, domain: [0, 1 - (top && top + 0.04)] },
    ...(scored.length ? { yaxis2: { title: { text: "score / threshold" }, domain: [1 - top, 1], rangemode: "tozero", gridcolor: "#e6e6e6",
      zeroline: false, automargin: true } } : {}), height: Math.max(320, rowsHeight + (scored.length ? 220 : 0)) },
    pipelines.some((p) => p.trainEnds.length) ? "" : "no model has been trained yet");
}

function drawSamples(pipelines) {
  const traces = pipelines.map((p) => ({ x: p.trainEnds, y: p.samples, mode: "lines+markers", name: p.label,
    line: { color: colourOf(p), width: 1.3 }, marker: { size: 5 }, hovertemplate: `%{x}: %{y:,} samples<extra>${p.label}</extra>` }));
  show("samples", traces, { title: "Samples per trigger", xaxis: timeAxis(), yaxis: { title: { text: "samples trained on" }, rangemode: "tozero" } },
    pipelines.some((p) => p.trainEnds.length) ? "" : "no model has been trained yet");
}

function isoDay(milliseconds) {
  return new Date(milliseconds).toISOString().slice(0, 10);
}

function drawMatrix(p) {
  const n = data.starts.length;
  const values = p ? matrixOf(p, metric().name) : [];
  const rows = p ? p.trainEnds.map((_, m) => Array.from(values.subarray(m * n, (m + 1) * n), (v) => (Number.isFinite(v) ? v : null))) : [];
  const repeated = new Set(data.starts.map(isoDay)).size < n;
  const names = data.starts.map((s) => (repeated ? new Date(s).toISOString().slice(0, 16).replace("T", " ") : isoDay(s)));
  const unique = names.map((name, i) => (names.indexOf(name) === i ? name : `${name} (${i + 1})`));
  const chosen = p ? p[state.composite] : [];
  const boxes = chosen.map((m, i) => [m, i]).filter(([m]) => m >= 0).map(([m, i]) => ({ type: "rect", x0: i - 0.5, x1: i + 0.5,
    y0: m + 0.5, y1: m + 1.5, line: { color: "#D55E00", width: n > 60 ? 1.2 : 2 } }));
  const traces = p ? [{ type: "heatmap", z: rows, x: unique, y: p.trainEnds.map((_, m) => m + 1), colorscale: "Viridis",
    reversescale: metric().lower, hoverongaps: false, colorbar: { title: { text: metric().name, side: "right" }, thickness: 16 },
    customdata: p.trainEnds.map((end) => data.starts.map((_, i) => [isoDay(end), isoDay(data.ends[i])])),
    hovertemplate: "model %{y}, trained until %{customdata[0]}<br>from %{x} to %{customdata[1]}: %{z:.4f}<extra></extra>" },
    { x: [null], y: [null], mode: "markers", name: `${compositeText()} model`,
      marker: { symbol: "square-open", size: 11, color: "#D55E00", line: { width: 2 } } }] : [];
  const empty = !p || !p.trainEnds.length ? "no model has been trained yet" : n ? "" : "no interval has been scored yet";
  show("matrix", empty ? [] : traces, { title: `${metric().name} of every model in every interval`, shapes: boxes,
    xaxis: { type: "category", title: { text: "start of the interval (UTC)" }, nticks: 18, tickangle: -40, showgrid: false },
    yaxis: { title: { text: "model, in order of training" }, showgrid: false },
    legend: { x: 1, y: 1.02, xanchor: "right", yanchor: "bottom", orientation: "h" } }, empty);
}

function drawSlices(p) {
  const name = metric().name;
  const slices = Object.entries(p?.slices ?? {}).filter(([, values]) => values[name]);
  byId("slices-section").hidden = !slices.length;
  if (!slices.length) return;
  const line = (y, label, colour, width) => ({ x: mids, y, mode: "lines+markers", name: label, line: { color: colour, width },
    marker: { size: 4 }, customdata: data.starts.map((s, i) => [isoDay(s), isoDay(data.ends[i])]),
    hovertemplate: `%{customdata[0]} – %{customdata[1]}: %{y:.4f}<extra>${label}</extra>` });
  const traces = slices.map(([label, values], i) => line(values[name][state.composite], label, COLOURS[(i + 1) % COLOURS.length], 1.3));
  traces.push(line(seriesOf(p), "all samples", "#000000", 2.4));
  show("slices", traces, { title: `Score of the ${compositeText()} model by slice`, xaxis: timeAxis(), yaxis: valueAxis() },
    traces.some((t) => t.y.some((v) => v !== null)) ? "" : "no interval has been scored yet");
}

function drawDecisions(p) {
  const d = p?.decisions;
  const traces = d ? [
    { x: d.times, y: d.scores, mode: "lines+markers", name: "score", marker: { size: 4 }, line: { color: COLOURS[0] } },
    { x: d.times, y: d.thresholds, mode: "lines", name: "threshold", line: { color: COLOURS[1], dash: "dash" } },
    { x: d.fired.map((i) => d.times[i]), y: d.fired.map((i) => d.scores[i]), mode: "markers", name: "trigger",
      marker: { symbol: "diamond", size: 10, color: COLOURS[2] } }] : [];
  show("decisions", traces, { title: "What triggers were decided from: scores and thresholds", xaxis: timeAxis(),
    yaxis: { title: { text: "score of the triggering policy" } } }, d ? "" : "this pipeline does not decide from a score");
}

function drawStages(p) {
  const names = p ? Object.keys(p.stages) : [];
  const traces = names.map((stage, i) => {
    let total = 0;
    return { x: p.trainEnds, y: p.stages[stage].map((s) => (total += s ?? 0)), stackgroup: "all", mode: "lines", name: stage,
      line: { color: COLOURS[i], width: 1 }, hovertemplate: `%{x}: %{y:.3g} s<extra>${stage}</extra>` };
  });
  const other = p ? Object.entries(p.otherSeconds).map(([stage, s]) => `${stage} ${s.toFixed(1)} s`).join(", ") : "";
  show("stages", traces, { title: `Cost over time by stage, cumulative${other ? ` (beside: ${other})` : ""}`, xaxis: timeAxis(),
    yaxis: { title: { text: "wall seconds (s)" }, rangemode: "tozero" } }, p?.trainEnds.length ? "" : "no model has been trained yet");
}

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
  byId("slices-section").hidden = !Object.keys(p?.slices ?? {}).length;
  return { matrix: () => drawMatrix(p), slices: () => drawSlices(p), decisions: () => drawDecisions(p), stages: () => drawStages(p) };
}

// One plot at a time, so that the page answers in between, and only what is on the screen or close to it; a newer wish for
// the same plot replaces an older one.
const waiting = new Map();
const near = new Set(["table"]);
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
    const swatch = element("span", undefined, "swatch");
    swatch.style.background = colourOf(pipeline);
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
  window.addEventListener("beforeprint", drawEverything);
  drawAll();
}

prepare();
