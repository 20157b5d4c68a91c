// @ts-check
// The page: one image, some classes, some methods; what each selects and answers, and why. It talks to this server only.
import { later } from "./page/ask.js";
import { copy } from "./page/copy.js";
import { at, fill, make } from "./page/dom.js";
import { showSamples, take, takeSample } from "./page/image.js";
import { list } from "./page/server.js";
import { addClasses, showChips, showMethod } from "./page/settings.js";
import { recall, state } from "./page/state.js";
import { prepareSurfaces } from "./page/surfaces.js";
import { complain, lookAt, showKnown } from "./page/tell.js";
import { prepareTerms } from "./page/terms.js";

async function start() {
  const { chosen } = state;
  try {
    [state.methods, { data: state.models }, state.prompts, state.sets, state.limits, state.opening] = await Promise.all(
      ["v1/methods", "v1/models", "v1/prompts", "v1/class_sets", "v1/limits", "v1/opening"].map(list));
  } catch (error) {
    complain(error.message);
    return;
  }
  at("key-form").hidden = true;
  chosen.classes = [...state.opening.classes];
  const isRead = recall();
  complain(isRead ? "" : "The settings of this link cannot be read; the page starts with its own.");
  if (!state.models.some((model) => model.id === chosen.model)) chosen.model = state.models[0].id;
  showSettings();
  const isFirst = !chosen.sample && location.hash.length < 2;
  const sample = isFirst ? state.opening.models.find((model) => model.id === chosen.model)?.sample : chosen.sample;
  if (sample) takeSample(sample, true);
}

function showSettings() {
  const { chosen, models, prompts, sets } = state;
  fill(at("model"), models.map((model) => [model.id, model.id]), chosen.model);
  fill(at("prompt"), [["", "by template"], ...prompts.map((prompt) => [prompt.name, prompt.name])], chosen.prompt);
  at("class-set").replaceChildren(make("option", { value: "" }, "Or take a list"),
    ...sets.map((set) => make("option", { value: set.name }, `${set.name} (${set.classes.length})`)));
  at("template").value = chosen.template;
  at("template").placeholder = "a photo of a {}.";
  at("compare").checked = Boolean(chosen.b);
  if (/^[a-z]+-\d+\.png$/.test(chosen.sample)) at("domain").value = chosen.sample.split("-")[0];
  showKnown();
  showChips();
  showMethod("a");
  showMethod("b");
  showSamples();
}

function listenForImages() {
  const drop = at("drop");
  const files = (items) => [...(items ?? [])].find((file) => file.type.startsWith("image/") || file.type === "");
  for (const name of ["dragover", "dragenter"]) drop.addEventListener(name, (event) => { event.preventDefault(); drop.classList.add("over"); });
  drop.addEventListener("dragleave", () => drop.classList.remove("over"));
  document.addEventListener("dragover", (event) => event.preventDefault());
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    drop.classList.remove("over");
    const file = files(event.dataTransfer?.files);
    lookAt(drop);
    if (file) take(file, file.name || "the image");
    else complain("What was dropped is not an image file.");
  });
  document.addEventListener("paste", (event) => {
    const file = files(event.clipboardData?.files);
    if (file) take(file, "the pasted image");
  });
  at("file").addEventListener("change", (event) => {
    const file = event.target.files[0];
    if (file) take(file, file.name);
  });
  at("domain").addEventListener("change", showSamples);
}

function listenForSettings() {
  const { chosen } = state;
  for (const name of ["input", "change", "keydown", "click"]) {
    document.querySelector(".settings").addEventListener(name, (event) => lookAt(event.target), { capture: true });
  }
  at("add-class").addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    addClasses(event.target.value);
    event.target.value = "";
  });
  at("class-set").addEventListener("change", (event) => {
    const set = state.sets.find((set) => set.name === event.target.value);
    if (set) { chosen.classes = [...set.classes]; showChips(); later(); }
    event.target.value = "";
  });
  at("model").addEventListener("change", (event) => { chosen.model = event.target.value; showKnown(); later(); });
  at("prompt").addEventListener("change", (event) => { chosen.prompt = event.target.value; at("template").disabled = Boolean(chosen.prompt); later(); });
  at("template").addEventListener("change", (event) => { chosen.template = event.target.value.trim(); later(); });
  at("compare").addEventListener("change", (event) => {
    chosen.b = event.target.checked ? { method: "zero-shot", views: 1, options: {} } : null;
    showMethod("b");
    later();
  });
}

listenForImages();
listenForSettings();
prepareSurfaces();
prepareTerms();
at("copy-panel").addEventListener("click", (event) => { const kind = event.target.dataset?.copy; if (kind) copy(kind); });
at("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("key", at("key").value);
  start();
});
start();
