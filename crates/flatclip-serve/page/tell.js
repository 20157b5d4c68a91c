// @ts-check
// What the page says: status, errors beside the control that caused them, the warning about photos.
import { at } from "./dom.js";
import { state } from "./state.js";
import { term } from "./terms.js";

const alert = at("alert");
/** Where errors go: beside the control that was used last, or into its panel if that was made anew. */
let eye = [];

export function say(text) { at("status").textContent = text; }

/** Remembers where the user looks; null for the results. */
export function lookAt(control) {
  eye = control ? [control.closest(".row, .option, .drop, .chips"), control.closest(".panel")] : [];
}

/** Shows an error beside the control that was used last, and in sight. */
export function complain(text) {
  alert.hidden = !text;
  alert.textContent = text;
  if (!text) return;
  const [near, panel] = eye;
  if (near?.isConnected) near.after(alert);
  else if (panel) panel.append(alert);
  else at("results").prepend(alert);
  settle(() => {
    const { top, bottom } = alert.getBoundingClientRect();
    if (top < 8 || bottom > innerHeight - 8) alert.scrollIntoView({ block: "center" });
  });
}

/** Scrolls now, and again when what went or came above has its place. */
function settle(scroll) {
  scroll();
  requestAnimationFrame(() => requestAnimationFrame(scroll));
}

const isNarrow = () => matchMedia("(max-width: 52rem)").matches;

/** On a phone the results lie below the image: brings them on screen. */
export function toResults() {
  if (isNarrow()) settle(() => at("results").scrollIntoView({ block: "start" }));
}

const modelNow = () => state.opening?.models.find((model) => model.id === state.chosen.model);

/** One line that says what the model knows. */
export function showKnown() {
  const { known } = state.opening, model = state.models.find((model) => model.id === state.chosen.model);
  const classes = () => [`Model ${model.id} was trained on synthetic drawings and knows `, term("", `${known.length} classes`, `${known.join(", ")}.`),
    `: ${known.slice(0, 3).join(", ")} … It does not know photos.`];
  const any = () => [`Model ${model.id} (${model.architecture}) compares an image with any class names that you give.`];
  at("known").replaceChildren(...(modelNow()?.synthetic ? classes() : any()));
}

/** Warns before the answer where the model cannot know the image or a class: every synthetic drawing has the same size. */
export function showWarning() {
  const { opening, image, chosen } = state, box = at("warning");
  const isForeign = (name) => !opening.known.includes(name.toLowerCase());
  const foreign = chosen.classes.find(isForeign);
  const isPhoto = image && (image.bitmap.width !== opening.side || image.bitmap.height !== opening.side);
  const reason = isPhoto ? "This image is not a synthetic drawing." : foreign ? `“${foreign.slice(0, 40)}” is not one of its ${opening.known.length} classes.` : "";
  box.hidden = !(image && reason && modelNow()?.synthetic);
  box.textContent = box.hidden ? "" : `${reason} This model was trained on synthetic drawings: predictions are not meaningful. `
    + "Start the server with --model ViT-B-16/openai or another CLIP model for photos.";
}
