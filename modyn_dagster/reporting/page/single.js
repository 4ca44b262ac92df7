// Plots of one pipeline.
const MOST_SLICES = 12;

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
  // The weakest ones, each in the colour of its place in the spec's order.
  const names = Object.keys(p?.slices ?? {});
  const slices = p ? judgedSlices(p).slice(0, MOST_SLICES).sort((a, b) => names.indexOf(a.name) - names.indexOf(b.name)) : [];
  byId("slices-section").hidden = !slices.length;
  if (!slices.length) return;
  const line = (y, label, colour, width) => ({ x: mids, y, mode: "lines+markers", name: label, line: { color: colour, width },
    marker: { size: 4 }, customdata: data.starts.map((s, i) => [isoDay(s), isoDay(data.ends[i])]),
    hovertemplate: `%{customdata[0]} – %{customdata[1]}: %{y:.4f}<extra>${label}</extra>` });
  const traces = slices.map((s, i) => line(s.series, s.name, shade(COLOURS[(i + 1) % COLOURS.length]), 1.3));
  traces.push(line(seriesOf(p), "all samples", theme().strong, 2.4));
  const which = slices.length < names.length ? `the ${slices.length} weakest slices of ${names.length}` : "slice";
  show("slices", traces, { title: `Score of the ${compositeText()} model by ${which}`, xaxis: timeAxis(), yaxis: valueAxis() },
    traces.some((t) => t.y.some((v) => v !== null)) ? "" : "no interval has been scored yet");
}

function drawDecisions(p) {
  const d = p?.decisions;
  const traces = d ? [
    { x: d.times, y: d.scores, mode: "lines+markers", name: "score", marker: { size: 4 }, line: { color: shade(COLOURS[0]) } },
    { x: d.times, y: d.thresholds, mode: "lines", name: "threshold", line: { color: shade(COLOURS[1]), dash: "dash" } },
    { x: d.fired.map((i) => d.times[i]), y: d.fired.map((i) => d.scores[i]), mode: "markers", name: "trigger",
      marker: { symbol: "diamond", size: 10, color: shade(COLOURS[2]) } }] : [];
  show("decisions", traces, { title: "What triggers were decided from: scores and thresholds", xaxis: timeAxis(),
    yaxis: { title: { text: "score of the triggering policy" } } }, d ? "" : "this pipeline does not decide from a score");
}

function drawStages(p) {
  const names = p ? Object.keys(p.stages) : [];
  const traces = names.map((stage, i) => {
    let total = 0;
    return { x: p.trainEnds, y: p.stages[stage].map((s) => (total += s ?? 0)), stackgroup: "all", mode: "lines", name: stage,
      line: { color: shade(COLOURS[i]), width: 1 }, hovertemplate: `%{x}: %{y:.3g} s<extra>${stage}</extra>` };
  });
  const other = p ? Object.entries(p.otherSeconds).map(([stage, s]) => `${stage} ${s.toFixed(1)} s`).join(", ") : "";
  show("stages", traces, { title: `Cost over time by stage, cumulative${other ? ` (beside: ${other})` : ""}`, xaxis: timeAxis(),
    yaxis: { title: { text: "wall seconds (s)" }, rangemode: "tozero" } }, p?.trainEnds.length ? "" : "no model has been trained yet");
}

