// The page: who has logged in, and which view is shown.

import { cameBack, forget, get, hasSecret, issuer, logIn, logInByCode, logInByToken, logInElsewhere, logOut, onEnd } from "./calls.js";
import { element, refusal } from "./elements.js";
import { ask, budget, everyone, forgetWritten, history, tables } from "./views.js";

const at = (id) => document.getElementById(id);
const VIEWS = { ask: ["Query", ask], history: ["History", history], tables: ["Tables", tables], budget: ["Budget", budget], everyone: ["Everyone", everyone] };
let me = null, turn = 0;

const allowed = () => Object.keys(VIEWS).filter((name) =>
  (name === "everyone" ? me.oversees : me.asks || name === "tables"));

async function show() {
  if (me === null) return;
  const own = ++turn; // an answer for a view that was left is not shown
  const names = allowed();
  const name = names.includes(location.hash.slice(1)) ? location.hash.slice(1) : names.includes("ask") ? "ask" : "everyone";
  at("views").replaceChildren(...names.map((each) =>
    element("a", { href: `#${each}`, "aria-current": each === name ? "page" : null }, VIEWS[each][0])));
  let found;
  try {
    found = await VIEWS[name][1](me);
  } catch (error) {
    found = [refusal(error)];
  }
  if (own !== turn || me === null) return;
  at("view").replaceChildren(...found.flat(Infinity).filter((each) => each !== null));
}

function enter(found) {
  me = found;
  for (const id of ["password", "token"]) at(id).value = "";
  at("refused").replaceChildren();
  at("who").textContent = `${me.user}, ${me.role}`;
  at("login").hidden = true;
  for (const id of ["views", "leave", "view"]) at(id).hidden = false;
  show();
}

function leave(reason = "") {
  me = null;
  turn += 1;
  forgetWritten();
  at("view").replaceChildren();
  at("who").textContent = "";
  at("refused").textContent = reason;
  for (const id of ["views", "leave", "view"]) at(id).hidden = true;
  at("login").hidden = false;
  at("name").focus();
}

async function logInNow() {
  at("enter").disabled = true;
  at("refused").textContent = "";
  try {
    const token = at("token").value.trim();
    enter(token ? await logInByToken(token) : await logIn(at("name").value, at("password").value));
  } catch (error) {
    at("refused").textContent = error.code === "unauthenticated" ? "Invalid name, password or token." : error.message;
  }
  at("enter").disabled = false;
}

document.forms[0].addEventListener("submit", (event) => {
  event.preventDefault(); // what is written goes into a header, and the page may send no form
  logInNow();
});
at("elsewhere").addEventListener("click", async () => {
  at("elsewhere").disabled = true;
  try {
    await logInElsewhere();
  } catch (error) {
    at("refused").textContent = error.message;
    at("elsewhere").disabled = false;
  }
});
at("leave").addEventListener("click", async () => {
  await logOut();
  leave();
});
onEnd(() => leave("The session has ended."));
addEventListener("hashchange", show);

issuer().then((name) => {
  if (name === null) return;
  at("elsewhere").textContent = `Log in with ${name}`;
  at("elsewhere").hidden = false;
}, () => {});

const back = cameBack();
if (back !== null) {
  logInByCode(back).then(enter, (error) =>
    leave(error.code === "unauthenticated" ? "The login failed; start it again." : error.message));
} else if (hasSecret()) {
  get("/v1/session").then(enter, (error) => {
    if (error.code !== "unauthenticated") {
      forget();
      leave(error.message);
    }
  });
} else {
  leave();
}
