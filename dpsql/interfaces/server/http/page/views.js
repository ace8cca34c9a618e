// The views: each is a function of what the API says, and returns its elements.

import { answered } from "./answer.js";
import { get, post } from "./calls.js";
import { growth } from "./chart.js";
import { Editor } from "./editor.js";
import { download, element, number, refusal, rounded, saved, shown, table } from "./elements.js";

const PAUSE = 500;
const MOST_ENTRIES = 1000;
const time = (text) => text.slice(0, 19).replace("T", " ");
const title = (text) => element("h1", {}, text);

// What is written in the editor outlives a change of the view, not that of the user.
const written = { sql: "", epsilon: "", dialect: "duckdb" };

export function forgetWritten() {
  Object.assign(written, { sql: "", epsilon: "", dialect: "duckdb" });
}

const plain = (name) => (/^[a-z_][a-z0-9_]*$/.test(name) ? name : `"${name.replaceAll('"', '""')}"`);

// A first question that the policy answers: a count of a private table, by a column whose values it lists.
function example(tables) {
  const found = tables.find((each) => each.private);
  if (found === undefined) return null;
  const key = found.columns.find((column) => column.values.length > 0 && column.values.length <= 20);
  return key === undefined
    ? `SELECT COUNT(*) AS n FROM ${plain(found.name)}`
    : `SELECT ${plain(key.name)}, COUNT(*) AS n FROM ${plain(found.name)} GROUP BY ${plain(key.name)}`;
}

// The tables and columns below the editor: a click puts a name into it.
function schema(tables, editor) {
  const put = (name, title) => element("button", { type: "button", title, onclick: () => editor.insert(plain(name)) }, name);
  const sample = example(tables);
  return element("div", { class: "schema" },
    sample === null ? null : element("p", {}, "For example: ",
      element("button", { type: "button", id: "example", onclick: () => { editor.text = sample; } }, sample)),
    tables.map((each) => element("p", {}, put(each.name, each.private ? "private table" : "public table"), ": ",
      each.columns.map((column) => put(column.name, [column.type, column.bounds.length ? `[${column.bounds.join(", ")}]` : column.values.join(", ")].filter(Boolean).join(" "))))));
}

function expected(plan) {
  const from = plan.indexOf("Measurements");
  const lines = from < 0 ? [] : plan.slice(from + 1);
  const end = lines.indexOf("");
  return lines.slice(0, end < 0 ? lines.length : end).map((line) => line.trim())
    .filter((line) => line.includes("expected") && !line.startsWith("not chosen"));
}

async function priced(asked, signal) {
  const explained = await post("/v1/explain", asked, signal);
  const forecast = explained.price === null || asked.epsilon === undefined
    ? null
    : await post("/v1/price", { queries: [asked.sql], epsilon: asked.epsilon, dialect: asked.dialect }, signal);
  return { explained, forecast };
}

function price({ explained, forecast }) {
  const found = explained.price;
  const lines = found === null
    ? ["Free: it reads public tables, or was answered before."]
    : [`Price: ${found.steps ? "at most " : ""}ε ${rounded(number(found.epsilon))}, charged to ${found.accounts.join(" and ")}.`];
  for (const { quote, share, times } of forecast?.queries ?? []) {
    if (quote === null) continue;
    const name = quote.analyst ? `${quote.table} for ${quote.analyst}` : quote.table;
    lines.push(`${name}: ${rounded(100 * number(share), 2)}% of the budget; the rest allows ${shown(times)} such queries.`);
  }
  return [
    lines.map((line) => element("p", {}, line)),
    element("ul", { class: "expected" }, expected(explained.plan).map((line) => element("li", {}, line))),
    explained.notices.map((notice) => element("p", { class: "notice" }, notice)),
    element("details", {}, element("summary", {}, "Plan and proofs"), element("pre", { class: "plan", tabindex: "0" }, explained.plan.join("\n"))),
  ];
}

export async function ask(me) {
  const [words, catalogue] = await Promise.all([get("/v1/words"), get("/v1/catalogue")]);
  if (written.epsilon === "") written.epsilon = String(number(me.default_epsilon ?? "0.1"));
  let timer = null, pending = null, last = null;
  const before = element("div", { id: "price", "aria-live": "polite" });
  const after = element("div", { id: "result", "aria-live": "polite" });
  const button = element("button", { type: "button", id: "ask", class: "main", disabled: true, onclick: () => send() }, "Run");
  const epsilon = element("input", { id: "epsilon", type: "number", min: 0, step: "any", value: written.epsilon, oninput: () => changed() });
  const dialect = element("select", { id: "dialect", onchange: () => changed() },
    ["duckdb", "postgres"].map((name) => element("option", { selected: name === written.dialect }, name)));
  const again = element("input", { type: "checkbox", id: "again", onchange: () => changed() });
  const editor = new Editor(words, catalogue, { changed: () => changed(), asked: () => send() });

  const body = () => ({ sql: editor.text, epsilon: epsilon.value.trim() || undefined, dialect: dialect.value, replay: !again.checked });

  function changed() {
    Object.assign(written, { sql: editor.text, epsilon: epsilon.value, dialect: dialect.value });
    last = null;
    button.disabled = true;
    button.textContent = "Run";
    pending?.abort();
    clearTimeout(timer);
    before.replaceChildren();
    if (editor.text.trim() !== "") timer = setTimeout(look, PAUSE);
  }

  // The price of exactly what stands there; only then can it be asked.
  async function look() {
    const asked = body();
    const own = (pending = new AbortController());
    try {
      const found = await priced(asked, own.signal);
      if (own.signal.aborted) return;
      before.replaceChildren(...price(found).flat());
      last = asked;
      button.disabled = false;
      button.textContent = found.explained.price === null ? "Run, free" : `Run for ε ${rounded(number(found.explained.price.epsilon))}`;
    } catch (error) {
      if (error.name !== "AbortError") before.replaceChildren(refusal(error, { quiet: true }));
    }
  }

  async function send() {
    if (last === null || button.disabled) return;
    const asked = { ...last, confidences: [0.95] };
    button.disabled = true;
    after.replaceChildren(element("p", { role: "status" }, "Asking …"));
    try {
      after.replaceChildren(answered(await post("/v1/query", asked)));
    } catch (error) {
      after.replaceChildren(refusal(error));
    }
    if (after.isConnected) changed(); // what it costs now
  }

  if (written.sql !== "") queueMicrotask(() => { editor.text = written.sql; });
  return [
    title("Query"), editor.element,
    element("div", { class: "fields line" },
      element("label", {}, "ε ", epsilon), element("label", {}, "Dialect ", dialect),
      element("label", {}, again, " draw new noise, at a charge, if the query was answered before"), button),
    before, after, schema(catalogue.tables, editor),
  ];
}

export async function history() {
  const { history: entries } = await get("/v1/history?limit=400");
  const charges = new Map();
  for (const entry of entries) charges.set(entry.charge, [entry, ...(charges.get(entry.charge) ?? [])]);
  const rows = [...charges].map(([charge, own]) => [
    time(own[0].at), element("code", {}, own[0].query),
    own.map((entry) => element("div", {}, `${entry.account ? `${entry.table} for ${entry.account}` : entry.table}: ε ${rounded(number(entry.epsilon), 4)}`)),
    element("span", { class: "downloads" },
      element("button", { type: "button", onclick: () => { written.sql = own[0].query; location.hash = "ask"; } }, "Edit"),
      element("button", { type: "button", onclick: () => receipt(charge) }, "Receipt")),
  ]);
  return [title("History"), rows.length ? table("Your charges, newest first; running a query again is free",
    ["At (UTC)", "Query", "Charged, as the ε of one query", ""], rows) : element("p", {}, "You have no charges yet.")];
}

async function receipt(charge) {
  download(`receipt-${charge}.json`, JSON.stringify(await get(`/v1/receipts/${charge}`), null, 2), "application/json");
}

export async function tables() {
  const { tables: found, privacy_unit: unit } = await get("/v1/catalogue");
  const span = (column) => (column.bounds.length ? `[${column.bounds.join(", ")}]` : column.values.join(", "));
  return [title("Tables"), element("p", {}, `The privacy unit is ${unit}.`), found.map((each) => [
    element("h2", {}, `${each.name}${each.private ? "" : " (public)"}`),
    element("ul", {}, each.rules.map((rule) => element("li", {}, rule))),
    table(`Columns of ${each.name}`, ["Column", "Type", "Bounds or values", "Notes"],
      each.columns.map((column) => [column.name, column.type, span(column), column.notes.join(", ")])),
  ])];
}

const share = (state) => number(state.spent.loss) / (number(state.limit.loss) || 1);

function budgetRows(budgets) {
  return budgets.map((state) => [
    state.name, rounded(number(state.epsilon)),
    element("span", {}, element("meter", { min: 0, max: 1, value: Math.min(1, share(state)), "aria-label": `${state.name}: spent` }), ` ${Math.round(100 * share(state))}%`),
    rounded(number(state.remaining_epsilon)), state.queries, state.locked ? `locked: ${state.failures} failures` : shown(state.failures),
  ]);
}

const BUDGET = ["Budget of", "ε", "Spent", "Largest ε of one query now", "Queries", "Failures"];

export async function budget() {
  const { budgets } = await get("/v1/budget");
  return [title("Budget"), table("Budgets that your queries are charged to", BUDGET, budgetRows(budgets)),
    element("p", { class: "hint" }, "The query page shows, before a query runs, how many more such queries the budget allows.")];
}

export async function everyone() {
  const [{ budgets }, { entries }, { users, tokens }, policy] = await Promise.all([
    get("/v1/budget?all=1"), get(`/v1/entries?limit=${MOST_ENTRIES}`), get("/v1/users"), get("/v1/policy")]);
  const grown = budgets.map((state) => {
    const own = entries.filter((entry) => entry.table === state.table && (entry.account ?? "") === state.analyst).reverse();
    const steps = own.map((entry) => ({ at: Date.parse(entry.at), share: number(entry.spent) * 10 ** 30 / (number(state.limit.loss) || 1) }));
    return steps.length ? element("figure", {}, element("figcaption", {}, state.name), growth(state.name, steps)) : null;
  });
  return [
    title("Everyone"), table("All budgets", BUDGET, budgetRows(budgets)), grown,
    table(`The ledger's last ${entries.length} entries`, ["At (UTC)", "Kind", "Who", "Account", "Query or reason"], entries.map((entry) => [
      time(entry.at), entry.kind, entry.analyst, entry.account ? `${entry.table} for ${entry.account}` : entry.table, element("code", {}, entry.reason ?? entry.query)])),
    saved("Download entries", "entries.json", () => JSON.stringify(entries, null, 2), "application/json"),
    table("Users", ["Name", "Role", "Since"], users.map((each) => [each.name, each.role, time(each.created)])),
    table("Tokens", ["Token", "User", "Name", "Until"], tokens.map((each) => [each.id, each.user, each.name, time(each.expires)])),
    element("h2", {}, "Policy"),
    element("p", {}, `data_version ${policy.policy.data_version ?? "not stated"}; digest ${policy.digest}`),
    policy.advice.length ? element("p", {}, "Advice:") : null,
    policy.advice.length ? element("ul", {}, ...policy.advice.map((each) => element("li", {}, each))) : null,
    element("pre", { class: "plan", tabindex: "0" }, JSON.stringify(policy.policy, null, 2)),
    element("p", { class: "hint" }, "Budgets, users and locks are changed by the owner's commands: dpsql ledger, dpsql users."),
  ];
}
