// @ts-check
// Entropy against sharpness. The line below which views are selected, entropy + lambda * sharpness = threshold, can be
// dragged; the vote follows.
import { describe, look, markSelected, refresh } from "./answers.js";
import { sayAnswers } from "./ask.js";
import { draw, make } from "./dom.js";
import { classify } from "./server.js";
import { showOption } from "./settings.js";
import { remember, state } from "./state.js";
import { pair } from "./surfaces.js";
import { complain, lookAt } from "./tell.js";

const [WIDTH, HEIGHT, EDGE] = [440, 260, 58];

/** Where values lie in the drawing, and back. */
function axesOf(dots) {
  const highX = Math.max(...dots.map((dot) => dot.x), 0.01) * 1.05;
  const lowY = Math.min(0, ...dots.map((dot) => dot.y)), highY = Math.max(...dots.map((dot) => dot.y), 0.001) * 1.08;
  const [across, up] = [WIDTH - EDGE - 10, HEIGHT - EDGE - 12];
  return {
    highX, lowY, highY,
    px: (x) => EDGE + (x / highX) * across,
    py: (y) => HEIGHT - EDGE - ((y - lowY) / (highY - lowY)) * up,
    x: (px) => ((px - EDGE) / across) * highX,
    y: (py) => lowY + ((HEIGHT - EDGE - py) / up) * (highY - lowY),
  };
}

function frame({ highX, lowY, highY, px, py }) {
  const tick = (value) => (value === 0 ? "0" : value.toPrecision(2));
  const parts = [draw("line", { class: "axis", x1: EDGE, y1: py(lowY), x2: WIDTH, y2: py(lowY) }), draw("line", { class: "axis", x1: EDGE, y1: 0, x2: EDGE, y2: py(lowY) })];
  for (const part of [0, 0.5, 1]) {
    parts.push(draw("text", { x: px(highX * part), y: HEIGHT - 22, "text-anchor": "middle" }, tick(highX * part)));
    parts.push(draw("text", { x: EDGE - 5, y: py(lowY + (highY - lowY) * part) + 4, "text-anchor": "end" }, tick(lowY + (highY - lowY) * part)));
  }
  parts.push(draw("text", { x: (EDGE + WIDTH) / 2, y: HEIGHT - 5, "text-anchor": "middle" }, "entropy (nats)"));
  parts.push(draw("text", { x: 0, y: 0, "text-anchor": "middle", transform: `translate(11 ${HEIGHT / 2 - 10}) rotate(-90)` }, "sharpness"));
  return parts;
}

/** The drawing and the vote below it; null for methods without sharpness. */
export function scatterOf(place) {
  const answer = state.answers[place];
  const lambda = Number(answer.asked.options.lambda ?? 1);
  if (answer.method !== "stss" || !lambda || answer.explain.threshold === null) return null;
  const dots = answer.explain.views.map((one) => ({ ...one, x: one.entropy, y: (one.score - one.entropy) / lambda }));
  const order = [...dots].sort((a, b) => a.score - b.score || a.index - b.index), axes = axesOf(dots);
  const label = `Entropy against sharpness of ${dots.length} views; the selected ones lie left of the dashed line`;
  const svg = draw("svg", { class: "scatter", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "group", "aria-label": label });
  const line = draw("line", { class: "threshold" }), reach = draw("line", { class: "reach" });
  const grip = draw("circle", { class: "grip", r: 8 });
  const handle = draw("g", { class: "handle", role: "slider", tabindex: 0, "aria-label": "Selection line: number of selected views",
    "aria-valuemin": 1, "aria-valuemax": order.length });
  handle.append(reach, line, grip);
  const circles = new Map([...dots].reverse().map((dot) => [dot.index, circleOf(dot, place, axes)]));
  svg.append(...frame(axes), ...circles.values(), handle);
  const tally = make("p", { className: "tally", role: "status" });
  const follow = follower(place, order.length, svg);

  function show(count) {
    const chosen = new Set(order.slice(0, count).map((dot) => dot.index));
    circles.forEach((circle, index) => { circle.setAttribute("class", chosen.has(index) ? "dot selected" : "dot"); circle.setAttribute("r", chosen.has(index) ? "5" : "4"); });
    const last = order[count - 1].score, threshold = (last + (order[count]?.score ?? last + 0.02)) / 2;
    const bottom = Math.min(Math.max(threshold - lambda * axes.lowY, 0), axes.highX), top = Math.min(Math.max(threshold - lambda * axes.highY, 0), axes.highX);
    const ends = [bottom, top].map((x) => [axes.px(x), axes.py(Math.min(Math.max((threshold - x) / lambda, axes.lowY), axes.highY))]);
    for (const one of [line, reach]) {
      ["x1", "y1", "x2", "y2"].forEach((name, at) => one.setAttribute(name, String(ends.flat()[at])));
    }
    // Near the upper end, where few views lie.
    grip.setAttribute("cx", String(ends[1][0] * 0.9 + ends[0][0] * 0.1));
    grip.setAttribute("cy", String(ends[1][1] * 0.9 + ends[0][1] * 0.1));
    handle.setAttribute("aria-valuenow", String(count));
    handle.setAttribute("aria-valuetext", `${count} of ${order.length} views selected`);
    tally.textContent = votes(order.slice(0, count));
    return chosen;
  }

  let count = answer.selected_views.length;
  function move(to) {
    const next = Math.min(Math.max(to, 1), order.length);
    if (next === count) return;
    count = next;
    markSelected(place, show(count));
    follow(count);
  }
  const toPointer = (event) => {
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    const threshold = axes.x(at.x) + lambda * axes.y(at.y);
    move(order.filter((dot) => dot.score <= threshold).length);
  };
  handle.addEventListener("pointerdown", (event) => { handle.setPointerCapture(event.pointerId); event.preventDefault(); handle.focus(); });
  handle.addEventListener("pointermove", (event) => { if (handle.hasPointerCapture(event.pointerId)) toPointer(event); });
  handle.addEventListener("keydown", (event) => {
    const to = { ArrowRight: count + 1, ArrowUp: count + 1, ArrowLeft: count - 1, ArrowDown: count - 1, PageUp: count + 8, PageDown: count - 8, Home: 1, End: order.length }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    move(to);
  });
  show(count);
  const help = make("p", { className: "note" }, "Drag the dashed line, or use the arrow keys on it: views left of it are selected, and the vote follows.");
  return [svg, tally, help];
}

function circleOf(dot, place, { px, py }) {
  const circle = draw("circle", { class: "dot", cx: px(dot.x), cy: py(dot.y), "data-view": dot.index, "data-place": place });
  circle.append(draw("title", {}, describe(dot)));
  circle.addEventListener("pointerenter", () => look(place, dot.index));
  circle.addEventListener("click", () => pair(place, dot.index));
  return circle;
}

/** How the selected views vote, each with its most probable class. */
function votes(selected) {
  const found = new Map();
  for (const one of selected) found.set(one.top[0].class, (found.get(one.top[0].class) ?? 0) + 1);
  const sorted = [...found].sort((a, b) => b[1] - a[1]);
  return `${selected.length} selected: ${sorted.map(([name, count]) => `${count} × ${name}`).join(", ")}`;
}

/** Asks the server for the answer with so many views selected, one question at a time, the newest last. */
function follower(place, total, svg) {
  let wanted = 0, busy = false;
  return async (count) => {
    wanted = count;
    if (busy) return;
    busy = true;
    try {
      for (let done = 0; wanted !== done && svg.isConnected;) {
        done = wanted;
        const { asked } = state.answers[place], letter = place === 0 ? "a" : "b";
        const fraction = Math.ceil((done / total) * 1e4) / 1e4; // int(fraction * views) is `done`
        const answer = await classify({ ...asked, options: { ...asked.options, fraction } });
        if (!svg.isConnected) return;
        state.answers[place] = answer;
        state.chosen[letter].options.fraction = fraction;
        showOption(letter, "fraction", fraction);
        remember();
        refresh(place);
        sayAnswers();
      }
    } catch (error) {
      lookAt(null);
      complain(error.message);
    } finally {
      busy = false;
    }
  };
}
