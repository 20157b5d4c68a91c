// @ts-check
// Terms that are explained on tap.
import { at, make } from "./dom.js";

const TERMS = {
  view: "A view is a crop of the image, enlarged to the size that the model sees and sometimes mirrored. View 0 is the whole image.",
  selected: "A method selects the views that it trusts; only these decide the answer. The others are rejected.",
  entropy: "Entropy tells how undecided a view is between the classes, in nats: 0 means certain, the logarithm of the number of classes means no preference.",
  sharpness: "Sharpness tells how much a view's entropy rises when the prompt is changed a little. A flat view (low sharpness) gives the same answer for all similar prompts.",
  surface: "The loss surface of a view: the entropy of its prediction while the prompt moves along two random directions. The middle is the prompt itself.",
  prompt: "The prompt is the text around a class name, such as “a photo of a {}.”. The model compares the image with the prompt of each class.",
  "zero-shot": "Zero-shot: the model looks at the whole image once and takes the class whose prompt fits best. No view is selected.",
  zero: "ZERO makes views, selects those with the lowest entropy, and each selected view votes for one class.",
  stss: "STSS makes views, selects those with the lowest entropy plus sharpness, and the selected views vote. It prefers views whose answer does not depend on the exact prompt.",
};

/** A word that is explained on tap, by the list above or by other words. */
export function term(name, text = name, meaning = TERMS[name]) {
  const button = make("button", { type: "button", className: "term" }, text);
  button.addEventListener("click", () => explain(button, meaning));
  return button;
}

function explain(button, meaning) {
  const box = at("term");
  box.textContent = meaning;
  box.showPopover();
  const place = button.getBoundingClientRect(), size = box.getBoundingClientRect();
  const left = Math.min(Math.max(place.left, 8), document.documentElement.clientWidth - size.width - 8);
  const below = place.bottom + size.height + 8 < innerHeight;
  box.style.left = `${left}px`;
  box.style.top = `${below ? place.bottom + 6 : Math.max(place.top - size.height - 6, 8)}px`;
}

/** Turns `<span data-term>` of the page into such words. */
export function prepareTerms() {
  for (const span of document.querySelectorAll("[data-term]")) span.replaceWith(term(span.getAttribute("data-term"), span.textContent));
}
