// An answer: its table with ±, a chart, what it cost, and its downloads.

import { chart } from "./chart.js";
import { cut, element, number, rounded, saved, table } from "./elements.js";

// The larger distance from a cell's value to the ends of its 95% interval.
function halfWidth(value, ends) {
  const [low, high] = ends.map(number);
  return Math.max(high - number(value), number(value) - low);
}

function cell(value, ends) {
  if (ends === null) return value;
  const half = halfWidth(value, ends);
  const [low, high] = ends.map((end) => cut(number(end), half));
  return element("span", { class: "noisy", title: `95%: from ${low} to ${high}` },
    cut(number(value), half), " ", element("span", { class: "error" }, `±${rounded(half, 2)}`));
}

const quoted = (value) => {
  const text = value === null ? "" : typeof value === "object" ? JSON.stringify(value) : String(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
};

// The rows as CSV, with the ends of the 95% intervals in columns of their own.
export function csv(answer) {
  const ends = answer.intervals[0].ends;
  const heads = answer.columns.flatMap((each) => (each.has_intervals ? [each.name, `${each.name}_low`, `${each.name}_high`] : [each.name]));
  const line = (row, at) => row.flatMap((value, place) => (answer.columns[place].has_intervals ? [value, ...(ends[at][place] ?? [null, null])] : [value]));
  return [heads, ...answer.rows.map(line)].map((row) => row.map(quoted).join(",")).join("\r\n") + "\r\n";
}

export function answered(answer) {
  const ends = answer.intervals[0].ends;
  const heads = answer.columns.map((each) => each.name);
  const rows = answer.rows.map((row, at) => row.map((value, place) => cell(value, ends[at][place])));
  const measures = answer.columns.map((each, place) => (each.has_intervals ? place : -1)).filter((place) => place >= 0);
  const picture = element("div", { class: "wide" });
  const draw = (place) => picture.replaceChildren(chart(answer, place) ?? "");
  if (measures.length > 0) draw(measures[0]);
  const select = measures.length > 1
    ? element("label", {}, "Column ", element("select", { onchange: (event) => draw(Number(event.target.value)) },
      measures.map((place) => element("option", { value: place }, heads[place]))))
    : null;
  return element("div", { class: "answer" },
    element("p", { class: "cost" }, answer.cost.join(" · ")),
    answer.notices.map((notice) => element("p", { class: "notice" }, notice)),
    table("Answer, with 95% error bounds", heads, rows, { id: "answer" }),
    select, picture,
    element("p", { class: "downloads" },
      saved("Download CSV", "answer.csv", () => csv(answer), "text/csv"),
      saved("Download receipt", "receipt.json", () => JSON.stringify(answer.receipt, null, 2), "application/json")));
}
