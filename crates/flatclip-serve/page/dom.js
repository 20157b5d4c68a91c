// @ts-check
// Elements of the page.

/** @template {HTMLElement} T @param {string} id @returns {T} */
export const at = (id) => /** @type {T} */ (document.getElementById(id));

/** Makes an element; texts never become markup. */
export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(properties)) {
    if (key in element && key !== "list") element[key] = value;
    else element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}

const SVG = "http://www.w3.org/2000/svg";
export function draw(tag, attributes = {}, text = "") {
  const element = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
  if (text) element.textContent = text;
  return element;
}

export function fill(select, entries, value) {
  select.replaceChildren(...entries.map(([key, text]) => make("option", { value: key, selected: key === value }, text)));
}

export const percent = (p) => `${(100 * p).toFixed(p > 0.9995 || p < 0.0005 ? 2 : 1)} %`;
export const short = (x) => (x === null || x === undefined ? "–" : Math.abs(x) < 0.001 && x !== 0 ? x.toExponential(1) : x.toFixed(3));
