// @ts-check
// Zero-shot, ZERO and STSS in one row: the answer of each, and the views it selected.
import { at, make, percent } from "./dom.js";
import { thumbnail } from "./image.js";
import { classify } from "./server.js";
import { state } from "./state.js";
import { term } from "./terms.js";

const ROW = [["zero-shot", "Zero-shot"], ["zero", "ZERO"], ["stss", "STSS"]];
/** Milliseconds of work up to which the row is asked for without being told. */
const CHEAP = 1000;
/** Thumbnails of a method. */
const MOST = 24;

/** Asks for what the row lacks; answers that are on the page already are taken over. */
export async function compare(signal, isAskedFor = false) {
  if (!isAskedFor && state.answers.some((answer) => (answer.work ?? 0) > CHEAP)) return offer(signal);
  for (const [place, [name]] of ROW.entries()) {
    if (state.answers.some((answer) => answer.method === name)) continue;
    const spec = state.methods.find((method) => method.name === name);
    try {
      state.compared[place] = await classify({ method: name, views: name === "zero-shot" ? 1 : spec.default_views, options: {} }, signal);
    } catch (error) {
      if (error.name === "AbortError") return;
      state.compared[place] = { failed: error.message };
    }
    if (signal.aborted) return;
    showCompared();
  }
}

/** With a large model the user decides whether two more answers are worth their time. */
function offer(signal) {
  const button = make("button", { type: "button" }, "Compare zero-shot, ZERO and STSS");
  button.addEventListener("click", () => { button.remove(); compare(signal, true); });
  at("idea").replaceChildren(button);
}

export function showCompared() {
  const isEmpty = !state.answers.length;
  at("compared-panel").hidden = isEmpty;
  if (isEmpty) return void (state.compared = []);
  const found = ROW.map(([name], place) => state.answers.find((answer) => answer.method === name) ?? state.compared[place]);
  const truth = state.chosen.classes.includes(state.image.truth) ? state.image.truth : "";
  at("compared").replaceChildren(...ROW.map(([name, title], place) => card(name, title, found[place], truth)));
  if (found.every((answer) => answer?.prediction)) tellIdea(found, truth);
}

function card(name, title, answer, truth) {
  const item = make("li", { "data-method": name }, make("h3", {}, term(name, title)));
  if (!answer) return item.append(make("p", { className: "note" }, "…")), item;
  if (answer.failed) return item.append(make("p", { className: "note" }, answer.failed)), item;
  const isRight = answer.prediction === truth;
  const mark = truth ? [make("span", { className: isRight ? "right" : "wrong" }, isRight ? "✓ right" : "✗ wrong")] : [];
  const { views } = answer.explain, selected = answer.selected_views.length ? answer.selected_views : views.map((one) => one.index);
  const all = views.length === 1 ? "the whole image" : `${selected.length} of ${views.length} views`;
  const images = selected.slice(0, MOST).map((index) => thumbnail(make("canvas", { width: 64, height: 64 }), views[index], answer.explain));
  const strip = make("div", { className: "strip", role: "img", ariaLabel: `Selected by ${title}: ${all}` }, ...images);
  item.append(make("p", { className: "answered" }, answer.prediction), make("p", { className: "note" }, ...mark, ` ${percent(answer.top[0].probability)}`),
    make("p", { className: "note" }, all), strip);
  return item;
}

/** The idea in words, made from the answers. */
function tellIdea([single, zero, stss], truth) {
  const isIdea = truth && single.prediction !== truth && stss.prediction === truth;
  at("compared-title").textContent = isIdea ? "One view is wrong, the selected views are right" : "Three methods on this image";
  const views = stss.explain.views.length, selected = stss.selected_views.length;
  const isSame = [zero, stss].every((answer) => answer.prediction === single.prediction);
  const idea = `From the whole image alone the model answers ${single.prediction} (${percent(single.top[0].probability)}). STSS takes ${views} views, selects the ${selected} that are confident and flat, and they vote for ${stss.prediction}.`;
  at("idea").textContent = isIdea ? idea : isSame ? `All three answer ${stss.prediction}.` : "The methods select different views and do not agree.";
}
