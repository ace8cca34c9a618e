// Charts with error bars, drawn as SVG.

import { drawn, number, rounded, shown } from "./elements.js";

const WIDTH = 640;
const LABELS = 150;
const LINE = 26;
const MOST = 60;

// A point and its 95% interval for each row of an answer; null where there is nothing to compare.
export function chart(answer, place) {
  const points = answer.rows.map((row, at) => ({
    label: row.filter((_, each) => !answer.columns[each].has_intervals).map(shown).join(", "),
    value: number(row[place]), ends: answer.intervals[0].ends[at][place]?.map(number),
  })).filter(({ value, ends }) => Number.isFinite(value) && ends?.every(Number.isFinite)).slice(0, MOST);
  if (points.length === 0) return null;
  const low = Math.min(0, ...points.map(({ ends }) => ends[0]));
  const high = Math.max(0, ...points.map(({ ends }) => ends[1]));
  const x = (value) => LABELS + ((value - low) / (high - low || 1)) * (WIDTH - LABELS - 20);
  const height = LINE * points.length + 30;
  const name = answer.columns[place].name;
  const cut = (text) => (text.length > 20 ? `${text.slice(0, 19)}…` : text);
  const lines = points.map(({ label, value, ends }, at) => {
    const y = 8 + LINE * at + LINE / 2;
    return drawn("g", {},
      drawn("title", {}, `${label} ${rounded(value)}, 95%: from ${rounded(ends[0])} to ${rounded(ends[1])}`),
      drawn("text", { x: LABELS - 8, y: y + 4, "text-anchor": "end" }, cut(label)),
      drawn("rect", { class: "bar", x: Math.min(x(0), x(value)), y: y - 8, width: Math.max(1, Math.abs(x(value) - x(0))), height: 16 }),
      drawn("path", { class: "whisker", d: `M${x(ends[0])} ${y}H${x(ends[1])}M${x(ends[0])} ${y - 5}v10M${x(ends[1])} ${y - 5}v10` }));
  });
  const marks = [low, 0, high].filter((value, at, all) => all.indexOf(value) === at);
  return drawn("svg", { class: "chart", viewBox: `0 0 ${WIDTH} ${height}`, role: "img", "aria-label": `${name} with 95% error bars, ${points.length} rows` },
    drawn("path", { class: "axis", d: `M${x(0)} 4V${height - 22}` }), lines,
    marks.map((value) => drawn("text", { class: "mark", x: x(value), y: height - 6, "text-anchor": value === high ? "end" : "middle" }, rounded(value, 3))));
}

// How the spent part of a budget grew, from the entries of its account, the oldest first.
export function growth(name, steps) {
  const begin = steps[0].at, last = steps.at(-1).share, span = Math.max(1, Date.now() - begin);
  const x = (at) => 10 + ((at - begin) / span) * (WIDTH - 20);
  const y = (share) => 100 - 90 * Math.min(1, share);
  const path = `M${x(begin)} ${y(0)}${steps.map(({ at, share }) => `H${x(at)}V${y(share)}`).join("")}H${x(begin + span)}`;
  const day = (at) => new Date(at).toISOString().slice(0, 16).replace("T", " ");
  return drawn("svg", { class: "chart growth", viewBox: `0 0 ${WIDTH} 124`, role: "img", "aria-label": `${name}: ${Math.round(100 * last)}% spent` },
    drawn("path", { class: "axis", d: `M10 100H${WIDTH - 10}M10 10H${WIDTH - 10}` }),
    drawn("path", { class: "whisker", d: path }),
    drawn("text", { class: "mark", x: 10, y: 118 }, day(begin)),
    drawn("text", { class: "mark", x: WIDTH - 10, y: 118, "text-anchor": "end" }, day(begin + span)),
    drawn("text", { class: "mark", x: 14, y: 22 }, "100%"));
}
