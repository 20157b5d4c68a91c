// @ts-check
// Classes and methods: what is asked beside the image.
import { later } from "./ask.js";
import { at, make } from "./dom.js";
import { state } from "./state.js";

export function addClasses(text) {
  const { chosen } = state;
  const names = text.split(/[,\n;]/).map((name) => name.trim()).filter(Boolean);
  const fresh = names.filter((name) => !chosen.classes.includes(name));
  chosen.classes.push(...new Set(fresh));
  if (fresh.length) { showChips(); later(); }
}

export function showChips() {
  const { chosen } = state, shown = chosen.classes.slice(0, 60);
  const chip = (name, place) => {
    const remove = make("button", { type: "button", ariaLabel: `Remove ${name}` }, "×");
    remove.addEventListener("click", () => {
      chosen.classes.splice(place, 1);
      showChips();
      const next = at("chips").querySelectorAll("button")[place] ?? at("add-class");
      next.focus();
      later();
    });
    return make("li", {}, make("span", {}, name), remove);
  };
  const rest = chosen.classes.length - shown.length;
  at("chips").replaceChildren(...shown.map(chip), ...(rest > 0 ? [make("li", {}, `and ${rest} more `)] : []));
}

/** The options that people move first. */
const FIRST = ["fraction", "radius", "perturbations", "lambda", "steps", "lr"];
/** Where a range has no end, a slider needs one. */
const REACH = { radius: 3, lambda: 3, lr: 0.05, steps: 10, perturbations: 64, scale: 2 };

export function showMethod(place) {
  const { chosen, methods, limits } = state;
  const mine = chosen[place], box = at(`method-${place}`);
  box.hidden = !mine;
  if (!mine) return box.replaceChildren();
  const spec = methods.find((method) => method.name === mine.method) ?? methods[0];
  const select = make("select", { id: `name-${place}` });
  for (const method of methods.filter((method) => method.kind === "episodic")) {
    select.append(make("option", { value: method.name, selected: method.name === spec.name, title: method.summary }, method.name));
  }
  select.addEventListener("change", () => {
    const next = methods.find((method) => method.name === select.value);
    chosen[place] = { method: next.name, views: next.default_views, options: {} };
    showMethod(place);
    at(`name-${place}`).focus();
    later();
  });
  const label = make("label", { htmlFor: select.id }, place === "a" ? "Answer by " : "and by ");
  const views = slider(place, { name: "views", sentence: "Views of the image.", kind: "integer", low: 1, high: Math.min(128, limits.views ?? 128) },
    mine.views, (value) => { mine.views = value; });
  const controls = spec.options.filter((option) => !["list", "text"].includes(option.kind)).map((option) => [option, control(place, mine, option)]);
  const rank = ([option]) => (FIRST.indexOf(option.name) + FIRST.length + 1) % (FIRST.length + 1);
  const front = controls.filter(([option]) => FIRST.includes(option.name)).sort((a, b) => rank(a) - rank(b));
  const rest = controls.filter(([option]) => !FIRST.includes(option.name));
  const more = make("details", {}, make("summary", {}, `${rest.length} more options`), ...rest.map(([, element]) => element));
  box.replaceChildren(make("div", { className: "row" }, label, select), make("p", { className: "note" }, spec.summary),
    views, ...front.map(([, element]) => element), ...(rest.length ? [more] : []));
}

/** Moves the slider of an option to what was set elsewhere. */
export function showOption(place, name, value) {
  const input = at(`${place}-${name}`);
  if (!input) return;
  input.value = value;
  input.previousElementSibling.textContent = String(value);
}

function control(place, mine, option) {
  const value = mine.options[option.name] ?? option.default;
  const set = (value) => {
    if (value === option.default) delete mine.options[option.name];
    else mine.options[option.name] = value;
  };
  if (option.kind === "number" || option.kind === "integer") return slider(place, option, value, set);
  const id = `${place}-${option.name}`;
  let input;
  if (option.kind === "flag") {
    input = make("input", { id, type: "checkbox", checked: value });
    input.addEventListener("change", () => { set(input.checked); later(); });
  } else {
    input = make("select", { id }, ...option.choices.map((name) => make("option", { value: name, selected: name === value }, name)));
    input.addEventListener("change", () => { set(input.value); later(); });
  }
  return make("div", { className: "option", title: option.sentence }, make("label", { htmlFor: id }, option.name), input);
}

function slider(place, option, value, set) {
  const id = `${place}-${option.name}`, whole = option.kind === "integer";
  const low = option.low ?? 0;
  const cap = whole ? state.limits.option_integer ?? 64 : Infinity;
  const high = Math.min(option.high ?? Math.max(REACH[option.name] ?? 1, Number(value) * 2), option.name === "views" ? Infinity : cap);
  const step = whole ? 1 : Number(((high - low) / 100).toPrecision(1)) || 0.01;
  const shown = make("output", { htmlFor: id }, String(value));
  const input = make("input", { id, type: "range", min: low, max: high, step, title: option.sentence });
  input.value = value;
  input.addEventListener("input", () => {
    const number = Number(input.value);
    const inside = option.range?.startsWith("above") && number <= low ? low + step : number;
    shown.textContent = String(inside);
    set(inside);
    later();
  });
  return make("div", { className: "option", title: option.sentence }, make("label", { htmlFor: id }, option.name), shown, input);
}
