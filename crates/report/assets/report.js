"use strict";
// Draws the charts of the page from the JSON inside it. Times are seconds, latencies microseconds.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const colors = {
    max: "#9aa5b1",
    p99: "#d55e00",
    mean: "#e69f00",
    rolling: "#009e73",
    p50: "#0072b2",
  };
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const live = new Set();

  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  // The one blue that is too dark on a dark sheet; the other colours are seen on both.
  const tone = (color) => (color === "#0072b2" ? css("--blue") : color);

  const latency = (us) => latencyOf(us, 3);
  // At a tick every digit counts; six leave out what the arithmetic of a step adds.
  const latencyTick = (us) => latencyOf(us, 6);

  function latencyOf(us, digits) {
    if (us == null) return "–";
    const [value, unit] =
      us === 0
        ? [0, "ms"]
        : us < 1
          ? [us * 1e3, "ns"]
          : us < 999.5
            ? [us, "µs"]
            : us < 999500
              ? [us / 1e3, "ms"]
              : [us / 1e6, "s"];
    return `${+value.toPrecision(digits)} ${unit}`;
  }

  function percentile(x) {
    if (x < 1.01) return "min";
    const q = 100 * (1 - 1 / x);
    const digits = Math.max(0, Math.round(Math.log10(x)) - 2);
    return "p" + (x >= 90 ? q.toFixed(digits) : q.toFixed(q % 1 ? 1 : 0));
  }

  const bytes = (value) => {
    if (value == null) return "–";
    const unit = Math.min(4, Math.max(0, Math.floor(Math.log2(Math.max(1, value)) / 10)));
    return `${+(value / 1024 ** unit).toPrecision(3)} ${["B", "KiB", "MiB", "GiB", "TiB"][unit]}`;
  };
  const number = (value) => (value == null ? "–" : value.toLocaleString("en-US"));
  const percent = (value) => (value == null ? "–" : `${+value.toPrecision(3)} %`);
  const second = (value) => (value == null ? "–" : `${+value.toFixed(2)} s`);

  const axis = (format, more) => ({
    stroke: () => css("--faint"),
    grid: { stroke: () => css("--grid"), width: 1 },
    ticks: { stroke: () => css("--line"), width: 1, size: 5 },
    font: "11px system-ui, sans-serif",
    values: (_, splits) => splits.map((split) => (split == null ? null : format(split))),
    ...more,
  });

  // The next of 1, 2, 5 times a power of ten.
  function roundStep(step) {
    const decade = 10 ** Math.floor(Math.log10(step));
    return decade * ([1, 2, 5].find((digit) => digit * decade >= step * 0.999) ?? 10);
  }

  // uPlot starts the ticks of a logarithmic axis at its lower end; round numbers read better.
  // 1 to 9 of every decade have a line, 1 has a label, and 2 and 5 where there is room.
  // On an axis shorter than that, even steps look even.
  const logarithmic = {
    splits: (u, index, low, high) => {
      const splits = [];
      if (high / low < 3) {
        const count = Math.max(2, Math.min(6, u.width / 90));
        const step = roundStep((high - low) / count);
        for (let tick = Math.ceil(low / step); tick * step <= high; tick++)
          splits.push(tick * step);
        return splits;
      }
      for (let decade = 10 ** Math.floor(Math.log10(low)); decade <= high; decade *= 10)
        for (let digit = 1; digit < 10; digit++)
          if (digit * decade >= low && digit * decade <= high) splits.push(digit * decade);
      return splits;
    },
    filter: (u, splits, index) => {
      const scale = u.scales[u.axes[index].scale];
      if (scale.max / scale.min < 3) return splits;
      const span = Math.log10(scale.max / scale.min);
      const labelled =
        span < 0.9
          ? [1, 2, 3, 5]
          : span < 3.1
            ? [1, 2, 5]
            : [1];
      return splits.map((split) => {
        const digit = Math.round(split / 10 ** Math.floor(Math.log10(split * 1.0001)));
        return labelled.includes(digit) ? split : null;
      });
    },
  };
  const percentileTicks = {
    splits: (u, index, low, high) =>
      [1, 2, 4, 10, 100, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9].filter((x) => x >= low && x <= high),
    // On a narrow page the labels between the least and p90 would cover each other.
    filter: (u, splits) =>
      splits.map((split) => (u.width < 560 && (split === 2 || split === 4) ? null : split)),
  };

  function draw(place, options, points) {
    const width = () => Math.max(280, place.clientWidth);
    const plot = new uPlot(
      { width: width(), height: options.height || 250, ...options.uplot },
      points,
      place,
    );
    const observer = new ResizeObserver(() => {
      if (Math.abs(plot.width - width()) > 1) plot.setSize({ width: width(), height: plot.height });
    });
    observer.observe(place);
    live.add({ place, plot, observer });
  }

  function clear(root) {
    for (const entry of live) {
      if (!root.contains(entry.place)) continue;
      entry.observer.disconnect();
      entry.plot.destroy();
      live.delete(entry);
    }
    root.replaceChildren();
  }

  function box(root, title) {
    const place = document.createElement("div");
    place.className = "plot";
    const inside = document.createElement("div");
    if (title) {
      const head = document.createElement("h4");
      head.textContent = title;
      place.append(head);
    }
    place.append(inside);
    root.append(place);
    return inside;
  }

  // A value without neighbours has no line to be seen in.
  const alone = (u, series) => {
    const values = u.data[series];
    const isAlone = (value, index) =>
      value != null && values[index - 1] == null && values[index + 1] == null;
    return values.flatMap((value, index) => (isAlone(value, index) ? [index] : []));
  };

  const line = (label, stroke, value, more) => ({
    label,
    stroke: () => tone(stroke),
    width: 1.8,
    points: { show: false, filter: alone, size: 6 },
    value: (_, v) => value(v),
    ...more,
  });

  const yRange = (range) => {
    return range[0] > 0 && range[1] / range[0] > 12
      ? {
          scale: { distr: 3, log: 10, range: [range[0] * 0.9, range[1] * 1.12] },
          ticks: logarithmic,
        }
      : { scale: { range: [0, range[1] * 1.08] }, ticks: {} };
  };

  function latencyOverTime(root, cells, pick, sync) {
    const shown = cells.filter(
      (cell) => cell[pick] && cell[pick].over_time.p50.some((v) => v != null),
    );
    const all = (name) =>
      shown.flatMap((cell) => cell[pick].over_time[name]).filter((v) => v != null);
    const y = yRange([Math.min(...all("p50")), Math.max(...all("max"))]);
    const end = Math.max(...shown.map((cell) => cell.seconds[cell.seconds.length - 1] + 0.5));
    for (const cell of shown) {
      const series = ["p50", "mean", "rolling", "p99", "max"];
      draw(
        box(root, cell.label),
        {
          uplot: {
            cursor: { sync: { key: sync } },
            scales: { x: { time: false, range: [0, end] }, y: y.scale },
            axes: [axis(second), axis(latency, { size: 66, ...y.ticks })],
            series: [
              line("time", null, second),
              ...series.map((name) =>
                line(name === "rolling" ? data.rolling_label : name, colors[name], latency, {
                  width: name === "max" ? 1 : 2,
                }),
              ),
            ],
          },
        },
        [cell.seconds, ...series.map((name) => cell[pick].over_time[name])],
      );
    }
  }

  function percentiles(root, cells, pick) {
    const shown = cells.filter((cell) => cell[pick]);
    const values = shown.flatMap((cell) => cell[pick].curve.us);
    const y = yRange([Math.min(...values), Math.max(...values)]);
    const xs = shown.map((cell) => cell[pick].curve.x);
    const longest = xs.reduce((a, b) => (b.length > a.length ? b : a));
    const x = [...new Set(xs.flat())].sort((a, b) => a - b);
    const columns = shown.map((cell) => {
      const found = new Map(
        cell[pick].curve.x.map((at, index) => [at, cell[pick].curve.us[index]]),
      );
      return x.map((at) => (found.has(at) ? found.get(at) : undefined));
    });
    draw(
      box(root, null),
      {
        height: 360,
        uplot: {
          scales: {
            x: { time: false, distr: 3, log: 10, range: [1, longest[longest.length - 1]] },
            y: y.scale,
          },
          axes: [axis(percentile, percentileTicks), axis(latency, { size: 66, ...y.ticks })],
          series: [
            line("percentile", null, (v) => (v == null ? "–" : percentile(v))),
            ...shown.map((cell) =>
              line(cell.label, cell.color, latency, {
                width: 2.2,
                spanGaps: true,
                points: { show: false },
              }),
            ),
          ],
        },
      },
      [x, ...columns],
    );
  }

  function bars(root, cells, pick, kind, range) {
    const shown = cells.filter((cell) => cell[pick]);
    // Panels on one axis for latencies have one for shares as well.
    const most = Math.max(...shown.flatMap((cell) => cell[pick][kind].share));
    for (const cell of shown) {
      const { edges, share } = cell[pick][kind];
      // A panel whose range nobody gives has its own.
      const [low, high] = range ?? [edges[0], edges[edges.length - 1]];
      draw(
        box(root, cell.label),
        {
          height: 220,
          uplot: {
            scales: {
              x: { time: false, distr: 3, log: 10, range: [low, high] },
              y: { range: (_, low, high) => [0, ((range ? most : high) || 1) * 1.08] },
            },
            axes: [axis(latencyTick, logarithmic), axis(percent, { size: 58 })],
            series: [
              line("from", null, latency),
              line("share of messages", "#0072b2", percent, {
                fill: () => css("--blue") + "88",
                width: 1,
                paths: uPlot.paths.stepped({ align: 1 }),
              }),
            ],
          },
        },
        [edges, [...share, share[share.length - 1]]],
      );
    }
  }

  const sheets = {
    percentiles: (root, group, cells, pick) => percentiles(root, cells, pick),
    over_time: (root, group, cells, pick) =>
      latencyOverTime(root, cells, pick, `time-${group.index}`),
    distribution: (root, group, cells, pick) =>
      bars(root, cells, pick, "bins", group.ranges[pick].bins),
    above_p90: (root, group, cells, pick) =>
      bars(root, cells, pick, "above_p90"),
    above_p99: (root, group, cells, pick) =>
      bars(root, cells, pick, "above_p99"),
  };

  function drawGroup(section, group) {
    const cells = group.cells.map((index) => data.cells[index]);
    const pick = section.dataset.pick;
    if (!group.ranges[pick]) return;
    for (const root of section.querySelectorAll("[data-sheet]")) {
      clear(root);
      sheets[root.dataset.sheet](root, group, cells, pick);
    }
    for (const button of section.querySelectorAll(".choice button"))
      button.setAttribute("aria-pressed", button.dataset.pick === pick);
  }

  function drawCell(root, cell) {
    clear(root);
    const chart = (title, format, series, more) => {
      const shown = series.filter(([, , values]) => values.some((value) => value != null));
      if (!shown.length) return;
      draw(
        box(root, title),
        {
          height: 190,
          uplot: {
            cursor: { sync: { key: cell.key } },
            scales: { x: { time: false }, y: { range: (_, low, high) => [0, (high || 1) * 1.1] } },
            axes: [axis(second), axis(format, { size: 66 })],
            series: [
              line("time", null, second),
              ...shown.map(([name, color]) => line(name, color, format)),
            ],
            ...more,
          },
        },
        [cell.seconds, ...shown.map(([, , values]) => values)],
      );
    };
    chart("Messages per second", number, [
      ["sent", "#0072b2", cell.sent],
      ["received", "#e69f00", cell.received],
    ]);
    chart("In flight", number, [["in flight", "#009e73", cell.in_flight]]);
    chart("CPU, 100 % is one core", percent, [
      ["server", "#d55e00", cell.server_cpu],
      ["generator", "#56b4e9", cell.generator_cpu],
    ]);
    chart("Server memory", bytes, [["resident", "#cc79a7", cell.server_rss]]);
  }

  function drawAll() {
    for (const section of document.querySelectorAll("[data-group]"))
      drawGroup(section, data.groups[+section.dataset.group]);
    for (const details of document.querySelectorAll("details[data-cell]")) {
      if (details.open)
        drawCell(details.querySelector(".plots"), data.cells[+details.dataset.cell]);
    }
  }

  for (const button of document.querySelectorAll(".choice button")) {
    button.addEventListener("click", () => {
      const section = button.closest("[data-group]");
      section.dataset.pick = button.dataset.pick;
      drawGroup(section, data.groups[+section.dataset.group]);
    });
  }
  for (const details of document.querySelectorAll("details[data-cell]")) {
    details.addEventListener("toggle", () => {
      if (details.open)
        drawCell(details.querySelector(".plots"), data.cells[+details.dataset.cell]);
    });
  }
  // Tells the style sheet at which edges something goes on.
  function watchEdges(box) {
    const more = document.createElement("p");
    more.className = "more";
    more.setAttribute("aria-hidden", "true");
    more.textContent = "goes on to the right: scroll →";
    box.after(more);
    const update = () => {
      const left = box.scrollWidth - box.clientWidth - box.scrollLeft;
      box.classList.toggle("goes-on-left", box.scrollLeft > 2);
      box.classList.toggle("goes-on-right", left > 2);
    };
    box.addEventListener("scroll", update, { passive: true });
    new ResizeObserver(update).observe(box);
    update();
  }
  for (const box of document.querySelectorAll(".scroll")) watchEdges(box);

  dark.addEventListener("change", drawAll);
  addEventListener("beforeprint", () => {
    for (const details of document.querySelectorAll("details")) details.open = true;
  });
  drawAll();
})();
