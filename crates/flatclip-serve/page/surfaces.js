// @ts-check
// A selected and a rejected view side by side, with their loss surfaces, which turn together.
import { describe, nameOf } from "./answers.js";
import { at, percent, short } from "./dom.js";
import { thumbnail } from "./image.js";
import { slice } from "./server.js";
import { paint } from "./solid.js";
import { state } from "./state.js";

const POINTS = 13;
/** The surface reaches so many times as far from the prompt as STSS looks. */
const REACH = 2;
/** Nats over which the heights reach at least: what is flat shall look flat. */
const FLAT = 0.1;

const angles = { turn: 0.6, tilt: 0.5 };
/** The canvas of each kind, and the rows of its surface. */
const solids = [{ canvas: at("slice"), view: at("slice-view"), caption: at("slice-caption"), rows: [], last: null },
  { canvas: at("slice-other"), view: at("slice-other-view"), caption: at("slice-other-caption"), rows: [], last: null }];
let loading = null;

export function stopSurfaces() {
  loading?.abort();
  loading = null;
  at("slice-stop").hidden = true;
}

const sharpness = (one) => (one.score === null ? one.entropy : one.score - one.entropy);

/** The best selected view and the sharpest rejected one; a view that is named stands for its kind. */
function choose(answer, index) {
  const views = answer.explain.views, named = views[index];
  const best = views[answer.selected_views[0]];
  const sharp = views.filter((one) => !one.selected).sort((a, b) => sharpness(b) - sharpness(a))[0];
  return [named?.selected ? named : best, named && !named.selected ? named : sharp];
}

/** Loads the surfaces of two views. */
export async function pair(place, index = -1) {
  stopSurfaces();
  const mine = loading = new AbortController(), answer = state.answers[place];
  document.querySelectorAll(".sheet button").forEach((button) => {
    button.setAttribute("aria-pressed", String(button.dataset.view === String(index) && button.closest(".answer") === at("answers").children[place]));
  });
  const radius = REACH * (Number(answer.asked.options.radius ?? 0.5) || 0.5);
  at("slice-panel").hidden = false;
  at("slice-legend").textContent = "…";
  at("slice-stop").hidden = false;
  at("slice-note").textContent = `Entropy of each view while the prompt moves by up to ${radius} along two random directions, relative to the entropy at the prompt (the dot). Both surfaces have the same height scale: a flat one means that the view's prediction does not depend on the exact prompt.`;
  const views = choose(answer, index);
  solids.forEach((solid, kind) => introduce(solid, views[kind], kind, answer));
  try {
    for (const [kind, one] of views.entries()) {
      if (one) await load(solids[kind], answer.asked, one.index, radius, mine.signal);
    }
    conclude();
  } catch (error) {
    if (error.name !== "AbortError") at("slice-legend").textContent = error.message;
  } finally {
    if (loading === mine) stopSurfaces();
  }
}

function introduce(solid, one, kind, answer) {
  Object.assign(solid, { rows: [], last: null });
  solid.canvas.closest("figure").hidden = !one;
  if (!one) return;
  const top = one.top[0];
  solid.caption.textContent = `${kind ? "Rejected" : "Selected"}, ${nameOf(one.index)}: ${top.class} ${percent(top.probability)}`;
  solid.view.width = 64; // clears it
  thumbnail(solid.view, one, answer.explain);
  solid.view.setAttribute("aria-label", describe(one));
}

async function load(solid, asked, view, radius, signal) {
  solid.last = await slice(asked, view, POINTS, radius, signal, (row) => {
    solid.rows.push(row);
    at("slice-legend").textContent = `Row ${solid.rows.length} of ${POINTS} …`;
    paintAll();
  });
}

/** Heights above the prompt's, with one scale for both. */
function paintAll() {
  const base = ({ rows }) => rows[POINTS >> 1]?.[POINTS >> 1] ?? rows[0]?.[0] ?? 0;
  const risen = solids.map((solid) => solid.rows.map((row) => row.map((value) => value - base(solid))));
  const all = risen.flat(2), low = Math.min(...all, 0), high = Math.max(...all, low + FLAT);
  solids.forEach(({ canvas }, kind) => {
    paint(canvas, risen[kind], POINTS, low, high, angles);
    canvas.setAttribute("aria-valuenow", String(Math.round((angles.turn * 180) / Math.PI)));
  });
}

function conclude() {
  const done = solids.filter((solid) => solid.last);
  const list = (text) => done.map(({ last }) => text(last)).join(" and ");
  at("slice-legend").textContent = `At the prompt ${list((last) => short(last.centre))} nats; the surface spans ${list((last) => short(last.highest - last.lowest))} nats${done.length === 2 ? " (selected and rejected)" : ""}.`;
}

function turn(across, up) {
  angles.turn = (angles.turn + across) % (2 * Math.PI);
  angles.tilt = Math.min(Math.max(angles.tilt + up, 0.1), 1.4);
  paintAll();
}

/** Drag, touch or arrow keys on either surface turn both. */
export function prepareSurfaces() {
  const keys = { ArrowLeft: [-0.1, 0], ArrowRight: [0.1, 0], ArrowUp: [0, 0.1], ArrowDown: [0, -0.1] };
  for (const { canvas } of solids) {
    let from = [0, 0];
    canvas.addEventListener("pointerdown", (event) => { canvas.setPointerCapture(event.pointerId); from = [event.clientX, event.clientY]; });
    canvas.addEventListener("pointermove", (event) => {
      if (!canvas.hasPointerCapture(event.pointerId)) return;
      turn((from[0] - event.clientX) / 100, (event.clientY - from[1]) / 100);
      from = [event.clientX, event.clientY];
    });
    canvas.addEventListener("keydown", (event) => {
      if (!keys[event.key]) return;
      event.preventDefault();
      turn(...keys[event.key]);
    });
  }
  at("slice-stop").addEventListener("click", () => { stopSurfaces(); at("slice-legend").textContent = "Stopped."; });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paintAll);
}
