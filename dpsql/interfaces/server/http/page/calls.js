// Calls of the API. The session's secret is kept for this tab alone, and goes to this server alone, in a header.

const KEY = "dpsql";
let secret = sessionStorage.getItem(KEY);
let whenEnded = () => {};

export const hasSecret = () => secret !== null;

export function onEnd(action) {
  whenEnded = action;
}

export function forget() {
  secret = null;
  sessionStorage.removeItem(KEY);
}

export class Refused extends Error {
  constructor(error) {
    super(error.message);
    Object.assign(this, { code: error.code, hint: error.hint, line: error.line, column: error.column, charged: error.charged });
  }
}

// JSON in which a whole number that this language would round stays a text.
function parsed(text) {
  const exact = (_, value, context) =>
    typeof value === "number" && Number.isInteger(value) && !Number.isSafeInteger(value) && /^-?\d+$/.test(context?.source ?? "")
      ? context.source
      : value;
  return JSON.parse(text, exact);
}

async function called(path, method, body, authorization, signal) {
  const headers = { Accept: "application/json" };
  if (authorization !== undefined) headers.Authorization = authorization;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(path, {
      method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body),
      cache: "no-store", credentials: "omit", redirect: "error",
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused({ message: "The server does not answer.", code: "no_server", charged: null });
  }
  const data = parsed(await response.text());
  if (!response.ok) throw new Refused(data.error);
  return data;
}

export async function call(path, { method = "GET", body, signal } = {}) {
  try {
    return await called(path, method, body, `Bearer ${secret}`, signal);
  } catch (error) {
    if (error.code === "unauthenticated") {
      forget();
      whenEnded();
    }
    throw error;
  }
}

export const get = (path, signal) => call(path, { signal });
export const post = (path, body, signal) => call(path, { method: "POST", body, signal });

function keep(found) {
  secret = found;
  sessionStorage.setItem(KEY, found);
}

export async function logIn(name, password) {
  const bytes = new TextEncoder().encode(`${name}:${password}`);
  const found = await called("/v1/session", "POST", undefined, `Basic ${btoa(String.fromCharCode(...bytes))}`);
  keep(found.session);
  return found;
}

// Logins at an issuer (OpenID Connect). What comes back is of use to the tab that has this secret alone.

const BINDER = "dpsql-login";
const base64url = (bytes) => btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");

export const issuer = async () => (await called("/v1/login", "GET")).issuer;

export async function logInElsewhere() {
  const own = base64url(crypto.getRandomValues(new Uint8Array(32)));
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(own)));
  const { address } = await called("/v1/login", "POST", { binder: base64url(digest) });
  sessionStorage.setItem(BINDER, own);
  location.assign(address);
}

// What an issuer has sent the browser back with; it does not stay in the address.
export function cameBack() {
  const found = new URLSearchParams(location.search);
  if (!found.has("state")) return null;
  history.replaceState(null, "", location.pathname);
  const secret = sessionStorage.getItem(BINDER) ?? "none";
  sessionStorage.removeItem(BINDER);
  return { state: found.get("state"), code: found.get("code") ?? "none", secret };
}

export async function logInByCode(body) {
  const found = await called("/v1/login/code", "POST", body);
  keep(found.session);
  return found;
}

export async function logInByToken(token) {
  const found = await called("/v1/session", "GET", undefined, `Bearer ${token}`);
  keep(token);
  return found;
}

export async function logOut() {
  try {
    await call("/v1/session", { method: "DELETE" });
  } catch {
    // The session has ended already.
  }
  forget();
}
