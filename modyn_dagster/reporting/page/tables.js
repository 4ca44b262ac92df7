// Tables of the page, each with a link to download it.
function element(tag, content, className) {
  const made = document.createElement(tag);
  if (content !== undefined) made.textContent = content;
  if (className) made.className = className;
  return made;
}

function swatchOf(pipeline) {
  const swatch = element("span", undefined, "swatch");
  swatch.style.background = colourOf(pipeline);
  return swatch;
}

// The table shows a rounded number, and the file has all its digits.
function cell(content, exact) {
  const made = element("td", content);
  if (exact !== undefined && exact !== null) made.dataset.exact = exact;
  return made;
}

const number = (value, digits) => cell(text(value, digits), value);

function fill(id, header, lines, file) {
  const top = element("tr");
  header.forEach((name) => top.append(element("th", name)));
  byId(id).replaceChildren(top, ...lines.map((cells) => {
    const line = element("tr");
    line.append(...cells);
    return line;
  }));
  const link = document.querySelector(`a[data-table="${id}"]`);
  link.href = `data:text/csv;charset=utf-8,${encodeURIComponent(csvOf(byId(id)))}`;
  link.download = `${file.replace(/[^\w.-]+/g, "_")}.csv`;
}

// RFC 4180. Spreadsheets run a text that begins like a formula: an apostrophe in front keeps it a text.
function csvOf(table) {
  const field = (td) => {
    const value = td.dataset.exact ?? td.textContent;
    const safe = /^[=+\-@\t\r]/.test(value) && !Number.isFinite(Number(value)) ? `'${value}` : value;
    return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  return [...table.rows].map((row) => `${[...row.cells].map(field).join(",")}\r\n`).join("");
}

function drawTable(rows, front) {
  const name = metric().name;
  const header = ["pipeline", "state", "trainings", "samples trained on", "seconds", "MB written", `mean ${name}, shared intervals`,
    `worst ${SHORTFALL * 100} %`, "mean over own intervals (number)", "retention of last model", "forgetting of last model",
    "regret in hindsight", "Pareto front"];
  const megabytes = (p) => (p.bytes === null ? null : p.bytes / 1e6);
  const lines = rows.map((row, i) => {
    const p = row.pipeline;
    const first = element("td", undefined, front[i] ? "front" : "");
    first.append(swatchOf(p), p.label);
    const s = p.summaries[name] ?? {};
    const failed = p.failed ? ` (${p.failed} more without a model)` : "";
    const samples = COSTS.samples.of(p);
    return [first, cell(p.state), cell(`${p.trainEnds.length}${failed}`), cell(count(samples), samples),
      cell(count(Math.round(p.totalSeconds * 10) / 10), p.totalSeconds), number(megabytes(p), 1), number(row.score), number(row.shortfall),
      cell(`${text(row.own)} (${row.nOwn})`), number(s.retention), number(s.forgetting), number(s.regret), cell(front[i] ? "yes" : "")];
  });
  bundles(rows).filter((b) => b.rows.length > 1).forEach((bundle) => {
    const spread = (of, digits) => {
      const values = bundle.rows.map(of);
      return cell(values.includes(null) ? "–" : `${text(mean(values), digits)} ± ${text(deviation(values), digits)}`);
    };
    lines.push([cell(`${bundle.name}: mean of ${bundle.rows.length} seeds`), cell(""), spread((r) => r.pipeline.trainEnds.length, 1),
      spread((r) => COSTS.samples.of(r.pipeline), 0), spread((r) => r.pipeline.totalSeconds, 1), spread((r) => megabytes(r.pipeline), 1),
      spread((r) => r.score), spread((r) => r.shortfall), spread((r) => r.own), ...["", "", "", ""].map((each) => cell(each))]);
  });
  fill("table", header, lines, "pipelines");
  const n = shared(compared()).filter(Boolean).length;
  byId("caption").textContent = rows.length === 0 ? "Choose a pipeline above." :
    `Shared: the ${n} of ${data.starts.length} intervals in which every chosen pipeline has an active model and a defined score.${delays(rows)}`;
}

function delays(rows) {
  const late = rows.map((row) => row.pipeline).filter((p) => p.labelDelay !== null).map((p) => `${p.label} (${p.labelDelay})`);
  const early = rows.map((row) => row.pipeline).filter((p) => p.pretrainedUntil).map((p) => `${p.label} (until ${p.pretrainedUntil})`);
  return (late.length ? ` Labels come later by simulation: ${late.join(", ")}.` : "") +
    (early.length ? ` Pretrained models may have seen early intervals: ${early.join(", ")}.` : "");
}

// Champions of a pipeline that promotes models.
function drawLive(p) {
  const live = p?.live;
  byId("live-section").hidden = !live;
  document.querySelector("nav a[href='#live-section']").parentElement.hidden = !live;
  if (!live) return;
  fill("live", live.header, live.rows.map((row) => row.map((content) => cell(content))), `${p.label}-live`);
  byId("live-caption").textContent = live.caption;
}

const share = (part, whole) => (whole ? part / whole : null);

// True classes in lines, predicted ones in columns; of many classes the most confused pairs.
function drawConfusion(p) {
  const all = p?.confusion;
  byId("confusion-section").hidden = !all;
  document.querySelector("nav a[href='#confusion-section']").parentElement.hidden = !all;
  if (!all) return;
  const c = all[state.composite];
  const nameOf = (k) => all.classes[k];
  byId("confusion-caption").textContent = `The ${compositeText()} model of ${p.label}: every sample counts with the model that stands for its `
    + `interval. ${count(c.samples)} samples of ${c.intervals} intervals${c.intervals < c.scored ? ` of ${c.scored}: the predictions of `
    + "the others are removed, or too many to be read" : ""}. ${c.matrix ? "Lines: true class; columns: predicted class; shade: share of the line."
      : `${c.nClasses} classes are too many for a matrix: the most confused pairs.`}`;
  if (c.matrix) {
    const counts = new Map(c.pairs.map(([truth, predicted, n]) => [`${truth} ${predicted}`, n]));
    const lines = c.matrix.map((truth) => {
      const row = c.matrix.map((predicted) => counts.get(`${truth} ${predicted}`) ?? 0);
      const total = row.reduce((a, b) => a + b, 0);
      const cells = row.map((n, k) => {
        const made = cell(count(n), n);
        made.style.background = `rgba(${c.matrix[k] === truth ? "0, 114, 178" : "213, 94, 0"}, ${(0.6 * (share(n, total) ?? 0)).toFixed(3)})`;
        made.title = `${nameOf(truth)} predicted as ${nameOf(c.matrix[k])}: ${text(share(n, total))} of ${count(total)}`;
        return made;
      });
      return [cell(nameOf(truth)), ...cells, cell(count(total), total)];
    });
    fill("confusion", ["true class", ...c.matrix.map((k) => `predicted ${nameOf(k)}`), "samples"], lines, `${p.label}-confusion`);
  } else {
    const lines = c.pairs.map(([truth, predicted, n, total]) => [cell(nameOf(truth)), cell(nameOf(predicted)), cell(count(n), n),
      number(share(n, total))]);
    fill("confusion", ["true class", "predicted class", "samples", "share of the true class"], lines, `${p.label}-confused`);
  }
  const lines = c.rows.map(([k, samples, right, predicted]) => [cell(nameOf(k)), cell(count(samples), samples), cell(count(predicted), predicted),
    number(share(right, samples)), number(share(right, predicted)), number(share(2 * right, samples + predicted))]);
  fill("classes", ["class", "samples", "predicted", "recall", "precision", "F1"], lines, `${p.label}-classes`);
  byId("classes-caption").textContent = c.rows.length < c.nClasses ? `The ${c.rows.length} classes with the most samples, of ${c.nClasses}.` : "";
}

function drawSliceTable(p) {
  const slices = p ? judgedSlices(p) : [];
  byId("slice-scores").hidden = !p;
  document.querySelector("a[data-table=slice-table]").hidden = byId("slice-table").hidden = !slices.length;
  byId("slice-note").textContent = slices.length ? `Samples with one value of a column, or of one class; the ${compositeText()} model, weakest first. `
    + "Means over the intervals with an active model; the difference is to all samples of the same intervals."
    : "This pipeline names no slices: evaluation.slices of its spec lists the columns whose values are scored apart.";
  const lines = slices.map((s) => [cell(s.name), cell(count(s.samples), s.samples), cell(String(s.n)), number(s.score), number(s.worst),
    number(s.difference)]);
  const name = metric().name;
  fill("slice-table", ["slice", "samples", "intervals", `mean ${name}`, "worst interval", "difference to all"], lines, `${p?.label}-slices`);
}
