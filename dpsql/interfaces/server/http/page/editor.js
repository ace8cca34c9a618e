// An editor of SQL: a text area with its highlighted text behind it, and completion.

import { element } from "./elements.js";

const TOKEN = /--[^\n]*|\/\*[\s\S]*?(?:\*\/|$)|'(?:[^']|'')*'?|"(?:[^"]|"")*"?|\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|[A-Za-z_]\w*|[\s\S]/g;
const MOST_CHOICES = 8;
const MOST_HIGHLIGHTED = 50000;

function kindOf(token, keywords, functions) {
  if (token.startsWith("--") || token.startsWith("/*")) return "comment";
  if (token[0] === "'") return "text";
  if (token[0] === '"') return "name";
  if (/\d/.test(token[0])) return "numeral";
  const word = token.toUpperCase();
  if (keywords.has(word)) return "keyword";
  return functions.has(word) ? "function" : null;
}

export class Editor {
  // `changed` is called after each change of the text, `asked` by Ctrl+Enter.
  constructor(words, catalogue, { changed, asked }) {
    this.keywords = new Set(words.keywords.flatMap((phrase) => phrase.split(" ")));
    this.functions = new Set(words.functions.map((call) => call.replace(/\(.*$/, "")));
    this.tables = new Map(catalogue.tables.map((each) => [each.name, each.columns.map((column) => column.name)]));
    this.words = words;
    this.choices = [];
    this.chosen = 0;
    this.changed = changed;
    this.area = element("textarea", {
      id: "sql", rows: 7, spellcheck: "false", autocapitalize: "none", autocomplete: "off", "aria-label": "SQL",
      "aria-autocomplete": "list", "aria-controls": "choices", "aria-describedby": "keys", wrap: "soft",
      oninput: () => this.#written(), onscroll: () => this.#scrolled(), onblur: () => this.#close(),
      onkeydown: (event) => this.#pressed(event, asked),
    });
    this.behind = element("pre", { class: "behind", "aria-hidden": "true" });
    this.list = element("ul", { id: "choices", role: "listbox", "aria-label": "Completions", hidden: true });
    this.element = element("div", { class: "editor" }, element("div", { class: "layers" }, this.behind, this.area), this.list,
      element("p", { id: "keys", class: "hint" }, "Ctrl+Space completes, Tab accepts the completion, Ctrl+Enter runs the query."));
  }

  get text() {
    return this.area.value;
  }

  set text(value) {
    this.area.value = value;
    this.#highlight();
    this.changed();
  }

  // Put a name where the caret is, as a completion does.
  insert(word) {
    this.area.focus();
    this.area.setRangeText(word, this.area.selectionStart, this.area.selectionEnd, "end");
    this.#highlight();
    this.changed();
  }

  #written() {
    this.#highlight();
    this.#complete(2);
    this.changed();
  }

  #scrolled() {
    this.behind.scrollTop = this.area.scrollTop;
  }

  #highlight() {
    const text = this.area.value;
    const plain = text.length > MOST_HIGHLIGHTED;
    const tokens = plain ? [text] : text.match(TOKEN) ?? [];
    this.behind.replaceChildren(...tokens.map((token) => {
      const kind = plain ? null : kindOf(token, this.keywords, this.functions);
      return kind === null ? token : element("span", { class: kind }, token);
    }), "\n");
    this.#scrolled();
  }

  #before() {
    const before = this.area.value.slice(0, this.area.selectionStart);
    return /(?:([A-Za-z_]\w*)\.)?([A-Za-z_]\w*)?$/.exec(before);
  }

  #complete(fewest) {
    const [, table, begun = ""] = this.#before();
    this.choices = begun.length >= fewest || (table && this.tables.has(table)) ? this.#found(table, begun) : [];
    this.chosen = 0;
    this.#show();
  }

  #found(table, begun) {
    const small = begun.toLowerCase();
    const inText = (name) => new RegExp(`\\b${name.replace(/[^\w]/g, "\\$&")}\\b`, "i").test(this.area.value);
    const columns = table && this.tables.has(table)
      ? this.tables.get(table).map((name) => [name, `column of ${table}`])
      : [...this.tables].filter(([name]) => inText(name)).flatMap(([name, own]) => own.map((each) => [each, `column of ${name}`]));
    const others = table ? [] : [
      ...[...this.tables.keys()].map((name) => [name, "table"]),
      ...this.words.keywords.map((word) => [word, "keyword"]),
      ...this.words.functions.map((word) => [word, "function"]),
    ];
    const known = new Set();
    return [...columns, ...others]
      .filter(([word]) => word.toLowerCase().startsWith(small) && word.toLowerCase() !== small && !known.has(word) && known.add(word))
      .slice(0, MOST_CHOICES);
  }

  #show() {
    this.list.hidden = this.choices.length === 0;
    this.list.replaceChildren(...this.choices.map(([word, kind], place) =>
      element("li", {
        id: `choice-${place}`, role: "option", "aria-selected": String(place === this.chosen),
        onmousedown: (event) => { event.preventDefault(); this.#take(place); },
      }, word, element("small", {}, ` ${kind}`))));
    if (this.list.hidden) this.area.removeAttribute("aria-activedescendant");
    else this.area.setAttribute("aria-activedescendant", `choice-${this.chosen}`);
  }

  #close() {
    this.choices = [];
    this.#show();
  }

  #take(place) {
    const [word] = this.choices[place];
    const end = this.area.selectionStart;
    const begun = this.#before()[2] ?? "";
    this.area.setRangeText(word, end - begun.length, end, "end");
    this.#close();
    this.#highlight();
    this.changed();
  }

  #pressed(event, asked) {
    const open = this.choices.length > 0;
    const move = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) asked();
    else if (event.key === " " && event.ctrlKey) this.#complete(0);
    else if (open && move) {
      this.chosen = (this.chosen + move + this.choices.length) % this.choices.length;
      this.#show();
    } else if (open && (event.key === "Tab" || event.key === "Enter")) this.#take(this.chosen);
    else if (open && event.key === "Escape") this.#close();
    else return; // Tab leaves the editor where there is nothing to complete
    event.preventDefault();
  }
}
