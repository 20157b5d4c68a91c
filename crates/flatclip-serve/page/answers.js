// @ts-check
// The answer of a method: bars, all views, scatter.
import { at, make, percent, short } from "./dom.js";
import { showImage, thumbnail } from "./image.js";
import { showCompared } from "./compare.js";
import { scatterOf } from "./scatter.js";
import { state } from "./state.js";
import { pair } from "./surfaces.js";
import { term } from "./terms.js";

export function showAnswers() {
  at("answers").replaceChildren(...state.answers.map(answerPanel));
  at("copy-panel").hidden = !state.answers.length;
  at("slice-panel").hidden = true;
  at("copied").hidden = true;
  showCompared();
  showImage();
}

function facts(answer) {
  const selected = answer.selected_views.length, views = answer.explain?.views.length ?? 0;
  const time = answer.work === null ? "" : `, ${answer.work.toFixed(0)} ms of work`;
  return `${selected && selected < views ? `${selected} of ${views} views selected` : `${views} ${views === 1 ? "view" : "views"}`}${time}`;
}

function answerPanel(answer, place) {
  const title = make("h2", { id: `answer-${place}` }, answer.method);
  const panel = make("section", { className: "panel answer" }, title, make("p", { className: "says" }, answer.prediction),
    make("p", { className: "note facts" }, facts(answer)), bars(answer.top));
  panel.setAttribute("aria-labelledby", title.id);
  if ((answer.explain?.views.length ?? 0) < 2) return panel;
  const surfaces = make("button", { type: "button", className: "surfaces" }, "Show loss surfaces");
  surfaces.addEventListener("click", () => pair(place));
  const scatter = scatterOf(place);
  const why = scatter ? [make("div", {}, make("h3", {}, term("entropy", "Entropy"), " and ", term("sharpness")), ...scatter, surfaces)] : [];
  const views = make("div", {}, make("h3", {}, "The ", term("view", "views"), ", best first"), sheet(answer, place),
    make("p", { className: "note view-says", id: `says-${place}`, role: "status" }, "Point at a view to see its prediction; choose one to see its loss surface."),
    ...(scatter ? [] : [surfaces]));
  panel.append(make("div", { className: "why" }, ...why, views));
  return panel;
}

/** Shows another answer for the same views where the old one stands, so that what has the focus keeps it. */
export function refresh(place) {
  const answer = state.answers[place], panel = at("answers").children[place];
  panel.querySelector(".says").textContent = answer.prediction;
  panel.querySelector(".facts").textContent = facts(answer);
  panel.querySelector(".bars").replaceWith(bars(answer.top));
  showCompared();
}

/** Frames these views as the selected ones. */
export function markSelected(place, indices) {
  for (const item of at("answers").children[place].querySelectorAll(".sheet li")) {
    item.className = indices.has(Number(item.firstElementChild.dataset.view)) ? "selected" : "";
  }
}

function bars(top) {
  const bar = ({ class: name, probability }) => {
    const fill = make("div", { className: "fill" });
    fill.style.width = `${100 * probability}%`;
    return make("li", {}, make("span", { className: "name" }, name), make("div", { className: "track" }, fill),
      make("span", { className: "number" }, percent(probability)));
  };
  return make("ol", { className: "bars", ariaLabel: "Classes by probability" }, ...top.map(bar));
}

function sheet(answer, place) {
  const views = [...answer.explain.views];
  const rank = new Map(answer.selected_views.map((index, at) => [index, at]));
  views.sort((a, b) => (rank.get(a.index) ?? 1e6) - (rank.get(b.index) ?? 1e6) || (a.score ?? a.entropy ?? 0) - (b.score ?? b.entropy ?? 0) || a.index - b.index);
  const items = views.map((one, order) => {
    const canvas = thumbnail(make("canvas", { width: 64, height: 64 }), one, answer.explain);
    const button = make("button", { type: "button", tabIndex: order ? -1 : 0, "data-view": one.index, ariaLabel: describe(one) }, canvas);
    button.setAttribute("aria-pressed", "false");
    button.addEventListener("pointerenter", () => look(place, one.index));
    button.addEventListener("focus", () => look(place, one.index));
    button.addEventListener("click", () => { look(place, one.index); pair(place, one.index); });
    return make("li", { className: one.selected ? "selected" : "" }, button);
  });
  const sheet = make("ul", { className: "sheet", ariaLabel: `${views.length} views, the selected ones framed; arrow keys move` }, ...items);
  sheet.addEventListener("keydown", (event) => moveIn(sheet, event));
  return sheet;
}

function moveIn(sheet, event) {
  const buttons = [...sheet.querySelectorAll("button")], now = buttons.indexOf(document.activeElement);
  const columns = getComputedStyle(sheet).gridTemplateColumns.split(" ").length;
  const move = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns, Home: -now, End: buttons.length - 1 - now }[event.key];
  const next = move === undefined ? undefined : buttons[now + move];
  if (!next) return;
  event.preventDefault();
  buttons[now].tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
}

export const nameOf = (index) => (index === 0 ? "the whole image" : `view ${index}`);

export function describe(one) {
  const says = one.top.slice(0, 2).map((top) => `${top.class} ${percent(top.probability)}`).join(", ");
  const name = one.index === 0 ? "The whole image" : `View ${one.index}`;
  return `${name}${one.selected ? ", selected" : ""}: ${says}; score ${short(one.score)}, entropy ${short(one.entropy)}`;
}

/** Points at a view: its prediction, its dot, its place in the image. */
export function look(place, index) {
  state.view = { place, index };
  const says = at(`says-${place}`);
  if (says) says.textContent = describe(state.answers[place].explain.views[index]);
  document.querySelectorAll(".scatter .dot").forEach((dot) => {
    dot.classList.toggle("chosen", dot.getAttribute("data-view") === String(index) && dot.getAttribute("data-place") === String(place));
  });
  showImage();
}
