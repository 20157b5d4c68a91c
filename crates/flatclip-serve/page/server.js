// @ts-check
// Talks to this server, and to no other.
import { at } from "./dom.js";
import { state } from "./state.js";

export async function call(path, options = {}) {
  const key = sessionStorage.getItem("key");
  const headers = { ...(options.headers ?? {}), ...(key ? { Authorization: `Bearer ${key}` } : {}) };
  let response;
  try {
    response = await fetch(path, { ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server does not answer. Is it still running?");
  }
  if (response.status === 401) at("key-form").hidden = false;
  if (!response.ok) {
    const body = await response.json().catch(() => null);
    const found = body?.error;
    const text = typeof found === "string" ? found : found?.message ?? `status ${response.status}`;
    throw new Error(found?.hint ? `${text} (${found.hint})` : text);
  }
  return response;
}

export const list = async (path) => (await call(path)).json();

/** The settings of a method as the server takes them. */
export function request(mine) {
  const { chosen } = state;
  const body = { model: chosen.model, method: mine.method, views: mine.views, explain: true, exif: true, top_k: 10 };
  if (chosen.classes.length) body.classes = chosen.classes;
  if (chosen.prompt) body.prompt = chosen.prompt;
  else if (chosen.template) body.template = chosen.template;
  if (Object.keys(mine.options).length) body.options = mine.options;
  return body;
}

function form(body) {
  const form = new FormData();
  for (const [key, value] of Object.entries(body)) {
    form.append(key, typeof value === "object" ? JSON.stringify(value) : String(value));
  }
  form.append("image", state.image.blob, "image");
  return form;
}

/** The answer of one method, with what was asked and how long it took. */
export async function classify(mine, signal) {
  const asked = structuredClone(mine);
  const response = await call("v1/classify", { method: "POST", body: form(request(asked)), signal });
  const answer = await response.json();
  const work = /work;dur=([\d.]+)/.exec(response.headers.get("server-timing") ?? "");
  return { ...answer, asked, work: work ? Number(work[1]) : null };
}

/** The loss of a view around the prompt; `onRow` gets each row, the last line is returned. */
export async function slice(asked, view, points, radius, signal, onRow) {
  const { explain, top_k, ...settings } = request(asked);
  const response = await call("v1/slice", { method: "POST", body: form({ ...settings, view, points, radius }), signal });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let last = null;
  for (let rest = "", done = false; !done;) {
    const piece = await reader.read();
    done = piece.done;
    rest += piece.value ?? "";
    const lines = rest.split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines.map((line) => JSON.parse(line))) {
      if (line.error) throw new Error(line.error.message);
      if (line.values) onRow(line.values);
      if (line.done) last = line;
    }
  }
  return last;
}
