// Elements of the page, made of texts alone: what a column or an error says never becomes HTML.

const SVG = "http://www.w3.org/2000/svg";

function filled(found, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) found.addEventListener(name.slice(2), value);
    else if (value === true) found.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) found.setAttribute(name, value);
  }
  found.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return found;
}

export const element = (name, attributes = {}, ...children) => filled(document.createElement(name), attributes, children);
export const drawn = (name, attributes = {}, ...children) => filled(document.createElementNS(SVG, name), attributes, children);

// The number that a JSON value, a text or an exact fraction as "1/3" is; NaN for none.
export function number(value) {
  if (typeof value === "number") return value;
  if (typeof value !== "string" || value === "") return NaN;
  const [above, below] = value.split("/");
  return below === undefined ? Number(above) : Number(above) / Number(below);
}

export function shown(value) {
  if (value === null || value === undefined) return "NULL";
  if (typeof value === "number") return Number.isInteger(value) ? value.toLocaleString("en") : rounded(value);
  return typeof value === "string" ? value : Array.isArray(value) ? `[${value.map(shown).join(", ")}]` : String(value);
}

export function rounded(value, digits = 6) {
  if (!Number.isFinite(value)) return value > 0 ? "∞" : value < 0 ? "−∞" : "none";
  const size = Math.abs(value);
  if (size >= 1e15 || (size > 0 && size < 1e-5)) return value.toExponential(3);
  return value.toLocaleString("en", { maximumSignificantDigits: Math.max(digits, Math.min(15, Math.floor(size).toString().length)) });
}

export function table(caption, heads, rows, attributes = {}) {
  const numeric = heads.map((_, place) => rows.length > 0 && rows.every((row) => typeof row[place] === "number"));
  const cell = (value, place) =>
    value instanceof Node || Array.isArray(value) ? element("td", {}, value instanceof Node || value.some((each) => each instanceof Node) ? value : shown(value)) : element("td", { class: numeric[place] ? "number" : null }, shown(value));
  return element("div", { class: "wide", tabindex: "0", role: "region", "aria-label": caption },
    element("table", attributes,
      element("caption", {}, caption),
      element("thead", {}, element("tr", {}, heads.map((head, place) => element("th", { scope: "col", class: numeric[place] ? "number" : null }, head)))),
      element("tbody", {}, rows.map((row) => element("tr", {}, row.map(cell))))));
}

// A number cut to its noise: to the second digit of the half-width of its interval.
export function cut(value, half) {
  if (!(half > 0) || !Number.isFinite(half) || !Number.isFinite(value)) return shown(value);
  const digits = 1 - Math.floor(Math.log10(half)), step = 10 ** -digits;
  return (digits > 0 ? value : Math.round(value / step) * step)
    .toLocaleString("en", { minimumFractionDigits: Math.min(15, Math.max(0, digits)), maximumFractionDigits: Math.min(15, Math.max(0, digits)) });
}

// What is wrong with a statement: quiet while it is still written, since nothing was asked yet.
export function refusal(error, { quiet = false } = {}) {
  const place = error.line ? ` (line ${error.line}, column ${error.column})` : "";
  const charge = error.charged === true ? "The query was charged." : error.charged === false ? "Nothing was charged." : null;
  return element("div", quiet ? { class: "refusal quiet" } : { class: "refusal", role: "alert" },
    element("p", {}, `${error.message}${place}`),
    error.hint ? element("p", { class: "hint" }, error.hint) : null,
    charge && !quiet ? element("p", {}, charge) : null);
}

export function download(name, text, type) {
  const address = URL.createObjectURL(new Blob([text], { type }));
  const link = element("a", { href: address, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

export const saved = (label, name, text, type) =>
  element("button", { type: "button", onclick: () => download(name, typeof text === "function" ? text() : text, type) }, label);
