
(() => {
  "use strict";
  const { participation, map } = JSON.parse(document.getElementById("report-data").textContent);
  const charts = [];
  // Read while drawing, so that charts follow a change between light and dark.
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const ratio = () => window.devicePixelRatio || 1;

  const addChart = (id, height, makeOptions, data) => {
    const element = document.getElementById(id);
    if (!element) return;
    element.hidden = false;
    const size = () => ({ width: Math.max(240, element.clientWidth), height: height(element.clientWidth) });
    const chart = new uPlot({ ...size(), ...makeOptions() }, data, element);
    // In a frame of its own: a change of size within the observer would be observed again.
    new ResizeObserver(() => requestAnimationFrame(() => {
      if (size().width !== chart.width) chart.setSize(size());
    })).observe(element);
    charts.push(chart);
  };

  const axis = (more) => ({
    stroke: () => color("muted"),
    grid: { stroke: () => color("line"), width: 1 },
    ticks: { stroke: () => color("line"), width: 1 },
    ...more,
  });
  const formatNumber = (number) => (number == null ? "" : number.toLocaleString("en"));

  const HOUR = 3600, DAY = 24 * HOUR, MONTH = 30 * DAY, YEAR = 365 * DAY;
  // Distances between labels of the time axis, none below the width of a bucket.
  const timeSteps = [
    ...[1, 2, 3, 6, 12].map((count) => count * HOUR),
    ...[1, 2, 7, 14].map((count) => count * DAY),
    ...[1, 2, 3, 6].map((count) => count * MONTH),
    ...[1, 2, 5, 10, 25, 50, 100, 250, 500, 1000].map((count) => count * YEAR),
  ].filter((step) => step >= Math.min(participation.width, 1000 * YEAR));
  const formatTimes = (_chart, times, _axis, _space, step) => {
    let day = "";
    return times.map((seconds) => {
      const [date, clock] = new Date(seconds * 1000).toISOString().split("T");
      if (step >= DAY) return step >= YEAR ? date.slice(0, -6) : step >= MONTH ? date.slice(0, -3) : date;
      const label = date === day ? clock.slice(0, 5) : `${clock.slice(0, 5)}\n${date}`;
      day = date;
      return label;
    });
  };

  const timeOptions = (series) => () => ({
    // All times are UTC, as in the bundle.
    tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
    cursor: { sync: { key: "time" }, drag: { setScale: false, x: false, y: false } },
    scales: {
      x: {
        range: () => {
          const { times, width } = participation;
          return [times[0] - width / 2, times[times.length - 1] + width / 2];
        },
      },
      y: { range: (_chart, _least, most) => [0, Math.max(1, most * 1.05)] },
    },
    axes: [
      axis({ incrs: timeSteps, space: 76, values: formatTimes }),
      axis({
        size: 64,
        incrs: [1, 2, 5].flatMap((digit) => [...Array(16).keys()].map((power) => digit * 10 ** power)).sort((a, b) => a - b),
        values: (_chart, ticks) => ticks.map(formatNumber),
      }),
    ],
    series: [{ label: "From", value: "{YYYY}-{MM}-{DD} {HH}:{mm}" }, series],
  });

  if (participation.times.length > 0) {
    const height = () => 200;
    addChart("answers-chart", height, timeOptions({
      label: "Answers",
      fill: () => color("agree"),
      stroke: () => color("agree"),
      width: 0,
      paths: uPlot.paths.bars({ size: [0.85, 60] }),
      points: { show: false },
      value: (_chart, value) => formatNumber(value),
    }), [participation.times, participation.answers]);
    addChart("participants-chart", height, timeOptions({
      label: "Participants",
      stroke: () => color("agree"),
      width: 2,
      points: { show: participation.times.length <= 40, size: 6, fill: () => color("agree"), stroke: () => color("agree") },
      value: (_chart, value) => formatNumber(value),
    }), [participation.times, participation.participants]);
  }

  // Convex hull of points in the order of their angle (monotone chain).
  const hullOf = (points) => {
    const sorted = [...points].sort((a, b) => a[0] - b[0] || a[1] - b[1]);
    const half = (list) => {
      const chain = [];
      for (const point of list) {
        while (chain.length > 1) {
          const [a, b] = chain.slice(-2);
          if ((b[0] - a[0]) * (point[1] - a[1]) - (b[1] - a[1]) * (point[0] - a[0]) > 0) break;
          chain.pop();
        }
        chain.push(point);
      }
      return chain.slice(0, -1);
    };
    return [...half(sorted), ...half(sorted.reverse())];
  };

  if (map) {
    const groupColor = (index) => color(`group-${"abcde"[index]}`);
    const hulls = map.groups.map((group) => hullOf(group.points));
    // Both axes have one scale, so that distances on the map can be compared.
    const reach = (axisIndex) => Math.max(...map.groups.flatMap((group) => group.points.map((point) => Math.abs(point[axisIndex]))), 0.1);
    const reaches = [reach(0) * 1.12, reach(1) * 1.12];
    const range = (axisIndex) => (chart) => {
      const sides = [chart.width, chart.height];
      const perPixel = Math.max(reaches[0] / sides[0], reaches[1] / sides[1]);
      return [-perPixel * sides[axisIndex], perPixel * sides[axisIndex]];
    };
    const drawGround = (chart) => {
      const { ctx, bbox } = chart;
      const x = (value) => chart.valToPos(value, "x", true);
      const y = (value) => chart.valToPos(value, "y", true);
      ctx.save();
      ctx.strokeStyle = color("line");
      ctx.lineWidth = ratio();
      ctx.beginPath();
      ctx.moveTo(bbox.left, y(0));
      ctx.lineTo(bbox.left + bbox.width, y(0));
      ctx.moveTo(x(0), bbox.top);
      ctx.lineTo(x(0), bbox.top + bbox.height);
      ctx.stroke();
      hulls.forEach((hull, index) => {
        ctx.beginPath();
        hull.forEach((point) => ctx.lineTo(x(point[0]), y(point[1])));
        ctx.closePath();
        ctx.strokeStyle = ctx.fillStyle = groupColor(index);
        ctx.lineJoin = "round";
        ctx.globalAlpha = 0.12;
        ctx.lineWidth = 18 * ratio();
        ctx.fill();
        ctx.globalAlpha = 0.5;
        ctx.lineWidth = ratio();
        ctx.stroke();
      });
      ctx.restore();
    };
    const drawPoints = (chart, seriesIndex) => {
      const { ctx } = chart;
      const [xs, ys] = chart.data[seriesIndex];
      const radius = (xs.length > 500 ? 2.5 : 4) * ratio();
      ctx.save();
      ctx.fillStyle = groupColor(seriesIndex - 1);
      ctx.strokeStyle = color("ground");
      ctx.lineWidth = ratio();
      xs.forEach((value, index) => {
        ctx.beginPath();
        ctx.arc(chart.valToPos(value, "x", true), chart.valToPos(ys[index], "y", true), radius, 0, 2 * Math.PI);
        ctx.globalAlpha = 0.8;
        ctx.fill();
        ctx.stroke();
      });
      ctx.restore();
      return null;
    };
    const drawNames = (chart) => {
      const { ctx } = chart;
      ctx.save();
      ctx.font = `600 ${18 * ratio()}px system-ui, sans-serif`;
      ctx.textAlign = "center";
      ctx.textBaseline = "middle";
      ctx.lineJoin = "round";
      ctx.lineWidth = 5 * ratio();
      ctx.strokeStyle = color("ground");
      ctx.fillStyle = color("ink");
      for (const { name, center } of map.groups) {
        const place = [chart.valToPos(center[0], "x", true), chart.valToPos(center[1], "y", true)];
        ctx.strokeText(name, ...place);
        ctx.fillText(name, ...place);
      }
      ctx.restore();
    };
    const columns = map.groups.map((group) => [0, 1].map((axisIndex) => group.points.map((point) => point[axisIndex])));
    addChart("map-chart", (width) => Math.round(Math.min(560, Math.max(300, width * 0.7))), () => ({
      mode: 2,
      legend: { show: false },
      cursor: { show: false },
      padding: [0, 0, 0, 0],
      scales: { x: { time: false, range: range(0) }, y: { range: range(1) } },
      axes: [{ show: false }, { show: false }],
      series: [{}, ...map.groups.map((_group, index) => ({ stroke: () => groupColor(index), paths: drawPoints }))],
      hooks: { drawClear: [drawGround], draw: [drawNames] },
    }), [null, ...columns]);
  }

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => charts.forEach((chart) => chart.redraw(false, true)));
  document.documentElement.dataset.charts = charts.length;
})();
