// @ts-check
// The image: chosen, dropped, pasted, or one of the samples.
import { later, clear } from "./ask.js";
import { at, make } from "./dom.js";
import { call } from "./server.js";
import { state } from "./state.js";
import { complain, lookAt, showWarning, toResults } from "./tell.js";

/** Takes an image and asks. `known` holds `sample`, `truth` and `isFirst`: a question of the page itself does not scroll. */
export async function take(blob, name, known = {}) {
  clear();
  try {
    const { limits, chosen } = state;
    let bitmap = await createImageBitmap(blob, { imageOrientation: "from-image" });
    let note = `${name}, ${bitmap.width} × ${bitmap.height}`;
    if (bitmap.width * bitmap.height > limits.pixels || blob.size > limits.body_bytes * 0.9) {
      [blob, bitmap] = await smaller(bitmap);
      note += `, sent at ${bitmap.width} × ${bitmap.height} because of the server's limits`;
    }
    state.image = { blob, bitmap, name, truth: known.truth ?? "", isFirst: Boolean(known.isFirst) };
    chosen.sample = known.sample ?? "";
    at("image-note").textContent = known.truth ? `${note}: ${known.truth}` : note;
    at("drop-hint").hidden = true;
    showImage();
    markSamples();
    showWarning();
    lookAt(null);
    if (!known.isFirst) toResults();
    later(0);
  } catch {
    lookAt(at("drop"));
    complain(`${name} cannot be shown: this browser does not know its format. JPEG, PNG, WebP, BMP and GIF work.`);
  }
}

async function smaller(bitmap) {
  const scale = 2048 / Math.max(bitmap.width, bitmap.height);
  const canvas = new OffscreenCanvas(Math.round(bitmap.width * scale), Math.round(bitmap.height * scale));
  canvas.getContext("2d").drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  const blob = await canvas.convertToBlob({ type: "image/jpeg", quality: 0.95 });
  return [blob, await createImageBitmap(blob)];
}

/** The image, with the place of the view that is pointed at. */
export function showImage() {
  const { image, view, answers } = state;
  if (!image) return;
  const { bitmap, name } = image, canvas = at("photo");
  const scale = Math.min(1, 1024 / Math.max(bitmap.width, bitmap.height));
  canvas.width = Math.max(1, Math.round(bitmap.width * scale));
  canvas.height = Math.max(1, Math.round(bitmap.height * scale));
  const pen = canvas.getContext("2d");
  pen.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  canvas.hidden = false;
  canvas.setAttribute("aria-label", `The image ${name}`);
  const one = view && answers[view.place]?.explain?.views[view.index];
  if (!one?.crop) return;
  const [left, top, width, height] = one.crop.map((side) => side * scale);
  pen.fillStyle = "rgb(0 0 0 / 45%)";
  pen.beginPath();
  pen.rect(0, 0, canvas.width, canvas.height);
  pen.rect(left, top, width, height);
  pen.fill("evenodd");
  pen.lineWidth = Math.max(2, canvas.width / 150);
  pen.strokeStyle = one.selected ? "#ff7a1a" : "#ffffff";
  pen.strokeRect(left, top, width, height);
}

/** A view as it was cut, drawn from the image itself. */
export function thumbnail(canvas, one, size) {
  const pen = canvas.getContext("2d"), { bitmap } = state.image;
  const [sx, sy] = [bitmap.width / size.width, bitmap.height / size.height];
  const side = Math.min(size.width, size.height);
  const [left, top, width, height] = one.crop ?? [(size.width - side) / 2, (size.height - side) / 2, side, side];
  if (one.flip) { pen.translate(canvas.width, 0); pen.scale(-1, 1); }
  pen.drawImage(bitmap, left * sx, top * sy, width * sx, height * sy, 0, 0, canvas.width, canvas.height);
  return canvas;
}

export function showSamples() {
  const domain = at("domain").value;
  const item = (number) => {
    const name = `${domain}-${number}.png`;
    const image = make("img", { src: `samples/${name}`, alt: `synthetic ${domain} ${number}`, loading: "lazy", width: 56, height: 56 });
    const button = make("button", { type: "button", "data-sample": name }, image);
    button.addEventListener("click", () => takeSample(name));
    return make("li", {}, button);
  };
  at("samples").replaceChildren(...Array.from({ length: 16 }, (_, number) => item(number)));
  markSamples();
}

export async function takeSample(name, isFirst = false) {
  clear();
  try {
    const response = await call(`samples/${name}`);
    await take(await response.blob(), name, { sample: name, truth: response.headers.get("x-class") ?? "", isFirst });
  } catch (error) {
    complain(error.message);
  }
}

function markSamples() {
  for (const button of at("samples").querySelectorAll("button")) {
    button.setAttribute("aria-pressed", String(button.dataset.sample === state.chosen.sample));
  }
}
