// @ts-check
// What the server offers, what the user chose, what is shown; and the settings in the address.

export const state = {
  methods: [], models: [], prompts: [], sets: [], limits: {},
  /** What the page opens with, and which models know synthetic drawings only. */
  opening: null,
  /** What a link holds: never the image. */
  chosen: { model: "", classes: [], template: "", prompt: "", sample: "", a: { method: "stss", views: 64, options: {} }, b: null },
  /** { blob, bitmap, name, truth, isFirst } */
  image: null,
  /** The answers of the chosen methods, and those of the row that compares methods. */
  answers: [], compared: [],
  /** { place, index }: the view that is pointed at. */
  view: null,
};

/** Settings go into the address, never the image; a sample is named. */
export function remember() {
  history.replaceState(null, "", `#${encodeURIComponent(JSON.stringify(state.chosen))}`);
}

const isMethod = (one) => one && typeof one.method === "string" && Number.isInteger(one.views) && typeof (one.options ?? {}) === "object";
const method = ({ method, views, options }) => ({ method, views, options: options ?? {} });

/** Takes the settings of the address; false where they cannot be read. */
export function recall() {
  if (location.hash.length < 2) return true;
  const { chosen } = state;
  try {
    const found = JSON.parse(decodeURIComponent(location.hash.slice(1)));
    for (const key of ["model", "template", "prompt", "sample"]) if (typeof found[key] === "string") chosen[key] = found[key];
    if (Array.isArray(found.classes)) chosen.classes = found.classes.filter((name) => typeof name === "string");
    if (isMethod(found.a)) chosen.a = method(found.a);
    chosen.b = isMethod(found.b) ? method(found.b) : null;
    return true;
  } catch {
    return false;
  }
}
