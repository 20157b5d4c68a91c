// @ts-check
// Asks the server when the settings have not changed for a moment, and shows the answers.
import { showAnswers } from "./answers.js";
import { compare } from "./compare.js";
import { at, percent } from "./dom.js";
import { classify } from "./server.js";
import { remember, state } from "./state.js";
import { pair, stopSurfaces } from "./surfaces.js";
import { complain, say, showWarning, toResults } from "./tell.js";

let running = null, waiting = 0;

export function later(wait = 250) {
  remember();
  clearTimeout(waiting);
  stopSurfaces();
  waiting = setTimeout(ask, wait);
}

/** Another image is coming: its answers are not those on the page. */
export function clear() {
  clearTimeout(waiting);
  running?.abort();
  stopSurfaces();
  complain("");
  Object.assign(state, { answers: [], compared: [], view: null });
  showAnswers();
}

export function sayAnswers() {
  say(state.answers.map((answer) => `${answer.method}: ${answer.prediction}, ${percent(answer.top[0].probability)}`).join("; "));
}

function working(asked) {
  at("working").hidden = false;
  say(`Computing ${asked.map((one) => `${one.method} on ${one.views} ${one.views === 1 ? "view" : "views"}`).join(" and ")} …`);
}

async function ask() {
  const { image, chosen } = state;
  if (!image) return;
  running?.abort();
  stopSurfaces();
  const mine = running = new AbortController();
  const asked = [chosen.a, chosen.b].filter(Boolean), isNew = !state.answers.length;
  const busy = setTimeout(() => working(asked), isNew ? 0 : 200); // a slider's small steps shall not flicker
  complain("");
  showWarning();
  try {
    const found = [];
    for (const one of asked) found.push(await classify(one, mine.signal));
    state.answers = found;
    state.view = null;
    showAnswers();
    sayAnswers();
  } catch (error) {
    if (error.name === "AbortError") return;
    Object.assign(state, { answers: [], compared: [] });
    showAnswers();
    complain(error.message);
    say("No answer.");
    return;
  } finally {
    clearTimeout(busy);
    if (running === mine) at("working").hidden = true;
  }
  if (isNew && !image.isFirst) toResults();
  await compare(mine.signal);
  if (image.isFirst && isNew && !mine.signal.aborted) pair(0);
}
