// @ts-check
// The page: one image, some classes, one or two methods; bars, views, scatter, slice. It talks to this server only.

/** @template {HTMLElement} T @param {string} id @returns {T} */
const at = (id) => /** @type {T} */ (document.getElementById(id));

/** Makes an element; texts never become markup. */
function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(properties)) {
    if (key in element && key !== "list") element[key] = value;
    else element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}

const SVG = "http://www.w3.org/2000/svg";
function draw(tag, attributes = {}, text = "") {
  const element = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
  if (text) element.textContent = text;
  return element;
}

// What the server offers.
let methods = [], models = [], prompts = [], sets = [], limits = {};
// What the user chose. The image is not part of what a link holds.
const chosen = { model: "", classes: ["fish", "lamp", "snail", "boat", "clock", "bicycle"], template: "", prompt: "",
  sample: "", a: { method: "stss", views: 64, options: {} }, b: null };
let image = null; // { blob, bitmap, name }
let answers = [];   // the answers on the page
let view = null;    // { place, index }: the view that is looked at
let running = null, slicing = null, waiting = 0;

// ---- talking to the server -------------------------------------------------------------------------------------------

async function call(path, options = {}) {
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

const list = async (path) => (await call(path)).json();

function say(text) { at("status").textContent = text; }
function complain(text) {
  at("alert").hidden = !text;
  at("alert").textContent = text;
}

// ---- image ---------------------------------------------------------------------------------------------------------

async function take(blob, name, sample = "") {
  try {
    let bitmap = await createImageBitmap(blob, { imageOrientation: "from-image" });
    let note = `${name}, ${bitmap.width} × ${bitmap.height}`;
    if (bitmap.width * bitmap.height > limits.pixels || blob.size > limits.body_bytes * 0.9) {
      [blob, bitmap] = await smaller(bitmap);
      note += `, sent at ${bitmap.width} × ${bitmap.height} because the server takes no larger ones`;
    }
    image = { blob, bitmap, name };
    chosen.sample = sample;
    at("image-note").textContent = note;
    at("drop-hint").hidden = true;
    showPhoto();
    markSamples();
    later(0);
  } catch {
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

/** The image, with the place of the view that is looked at. */
function showPhoto() {
  if (!image) return;
  const { bitmap, name } = image;
  const canvas = at("photo");
  const scale = Math.min(1, 1024 / Math.max(bitmap.width, bitmap.height));
  canvas.width = Math.max(1, Math.round(bitmap.width * scale));
  canvas.height = Math.max(1, Math.round(bitmap.height * scale));
  const pen = canvas.getContext("2d");
  pen.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  canvas.hidden = false;
  canvas.setAttribute("aria-label", `The image ${name}`);
  const crop = view && answers[view.place]?.explain?.views[view.index]?.crop;
  if (!crop) return;
  const [left, top, width, height] = crop.map((side) => side * scale);
  pen.fillStyle = "rgb(0 0 0 / 45%)";
  pen.beginPath();
  pen.rect(0, 0, canvas.width, canvas.height);
  pen.rect(left, top, width, height);
  pen.fill("evenodd");
  pen.lineWidth = Math.max(2, canvas.width / 150);
  pen.strokeStyle = answers[view.place].explain.views[view.index].kept ? "#ff7a1a" : "#ffffff";
  pen.strokeRect(left, top, width, height);
}

function showSamples() {
  const domain = at("domain").value;
  const item = (number) => {
    const name = `${domain}-${number}.png`;
    const image = make("img", { src: `samples/${name}`, alt: `drawn ${domain} ${number}`, loading: "lazy", width: 56, height: 56 });
    const button = make("button", { type: "button", "data-sample": name }, image);
    button.addEventListener("click", () => takeSample(name));
    return make("li", {}, button);
  };
  at("samples").replaceChildren(...Array.from({ length: 16 }, (_, number) => item(number)));
  markSamples();
}

async function takeSample(name) {
  try {
    await take(await (await call(`samples/${name}`)).blob(), name, name);
  } catch (error) {
    complain(error.message);
  }
}

function markSamples() {
  for (const button of at("samples").querySelectorAll("button")) {
    button.setAttribute("aria-pressed", String(button.dataset.sample === chosen.sample));
  }
}

// ---- classes ---------------------------------------------------------------------------------------------------------

function addClasses(text) {
  const names = text.split(/[,\n;]/).map((name) => name.trim()).filter(Boolean);
  const fresh = names.filter((name) => !chosen.classes.includes(name));
  chosen.classes.push(...new Set(fresh));
  if (fresh.length) { showChips(); later(); }
}

function showChips() {
  const shown = chosen.classes.slice(0, 60);
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

// ---- methods ---------------------------------------------------------------------------------------------------------

/** The options that people move first. */
const FIRST = ["fraction", "radius", "perturbations", "lambda", "steps", "lr"];
/** Where a range has no end, a slider needs one. */
const REACH = { radius: 3, lambda: 3, lr: 0.05, steps: 10, perturbations: 64, scale: 2 };

function showMethod(place) {
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
  const cap = whole ? limits.option_integer ?? 64 : Infinity;
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

// ---- asking ----------------------------------------------------------------------------------------------------------

function request(mine) {
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
  form.append("image", image.blob, "image");
  return form;
}

/** Asks again when nothing has changed for a moment. */
function later(wait = 250) {
  remember();
  clearTimeout(waiting);
  stopSlice();
  waiting = setTimeout(ask, wait);
}

async function ask() {
  if (!image) return;
  running?.abort();
  const mine = running = new AbortController();
  const asked = [chosen.a, chosen.b].filter(Boolean);
  const busy = setTimeout(() => { at("working").hidden = false; say("Working …"); }, 200);
  complain("");
  try {
    const found = [];
    for (const one of asked) {
      const start = performance.now();
      const response = await call("v1/classify", { method: "POST", body: form(request(one)), signal: mine.signal });
      const answer = await response.json();
      const work = /work;dur=([\d.]+)/.exec(response.headers.get("server-timing") ?? "");
      found.push({ ...answer, asked: one, ms: performance.now() - start, work: work ? Number(work[1]) : null });
    }
    answers = found;
    view = null;
    showAnswers();
    say(answers.map((answer) => `${answer.method}: ${answer.prediction}, ${percent(answer.top[0].probability)}`).join("; "));
  } catch (error) {
    if (error.name === "AbortError") return;
    complain(error.message);
    say("There is no answer.");
    answers = [];
    showAnswers();
  } finally {
    clearTimeout(busy);
    if (running === mine) at("working").hidden = true;
  }
}

const percent = (p) => `${(100 * p).toFixed(p > 0.9995 || p < 0.0005 ? 2 : 1)} %`;
const short = (x) => (x === null || x === undefined ? "–" : Math.abs(x) < 0.001 && x !== 0 ? x.toExponential(1) : x.toFixed(3));

// ---- answers ---------------------------------------------------------------------------------------------------------

function showAnswers() {
  at("answers").replaceChildren(...answers.map(answerPanel));
  at("copy-panel").hidden = !answers.length;
  at("slice-panel").hidden = true;
  at("copied").hidden = true;
  showPhoto();
}

function answerPanel(answer, place) {
  const title = make("h2", { id: `answer-${place}` }, answer.method);
  const time = answer.work === null ? "" : `, ${answer.work.toFixed(0)} ms of work`;
  const kept = answer.selected_views.length;
  const views = answer.explain?.views ?? [];
  const facts = kept && kept < views.length ? `${kept} of ${views.length} views decided` : `${views.length} ${views.length === 1 ? "view" : "views"}`;
  const panel = make("section", { className: "panel answer" }, title, make("p", { className: "says" }, answer.prediction),
    make("p", { className: "note" }, `${facts}${time}`), bars(answer.top));
  panel.setAttribute("aria-labelledby", title.id);
  if (views.length > 1) {
    panel.append(make("h3", {}, "The views, best first"), sheet(answer, place),
      make("p", { className: "note view-says", id: `says-${place}`, role: "status" }, "Point at a view to see what it says; choose one to see the loss around the prompt."));
    const scatter = scatterOf(answer, place);
    if (scatter) panel.append(make("h3", {}, "Entropy and sharpness"), scatter);
  }
  return panel;
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
    const canvas = make("canvas", { width: 64, height: 64 });
    thumbnail(canvas, one, answer.explain);
    const button = make("button", { type: "button", tabIndex: order ? -1 : 0, "data-view": one.index, ariaLabel: describe(one) }, canvas);
    button.setAttribute("aria-pressed", "false");
    button.addEventListener("pointerenter", () => look(place, one.index));
    button.addEventListener("focus", () => look(place, one.index));
    button.addEventListener("click", () => { look(place, one.index); slice(place, one.index); });
    return make("li", { className: one.kept ? "kept" : "" }, button);
  });
  const sheet = make("ul", { className: "sheet", ariaLabel: `${views.length} views, the kept ones framed; arrow keys move` }, ...items);
  sheet.addEventListener("keydown", (event) => {
    const buttons = [...sheet.querySelectorAll("button")], now = buttons.indexOf(/** @type {any} */ (document.activeElement));
    const columns = getComputedStyle(sheet).gridTemplateColumns.split(" ").length;
    const move = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns, Home: -now, End: buttons.length - 1 - now }[event.key];
    const next = move === undefined ? undefined : buttons[now + move];
    if (!next) return;
    event.preventDefault();
    buttons[now].tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });
  return sheet;
}

/** The view as it was cut, drawn here from the image itself. */
function thumbnail(canvas, one, size) {
  const pen = canvas.getContext("2d"), { bitmap } = image;
  const [sx, sy] = [bitmap.width / size.width, bitmap.height / size.height];
  const side = Math.min(size.width, size.height);
  const [left, top, width, height] = one.crop ?? [(size.width - side) / 2, (size.height - side) / 2, side, side];
  if (one.flip) { pen.translate(canvas.width, 0); pen.scale(-1, 1); }
  pen.drawImage(bitmap, left * sx, top * sy, width * sx, height * sy, 0, 0, canvas.width, canvas.height);
}

function describe(one) {
  const says = one.top.slice(0, 2).map((top) => `${top.class} ${percent(top.probability)}`).join(", ");
  const name = one.index === 0 ? "The image itself" : `View ${one.index}`;
  return `${name}${one.kept ? ", kept" : ""}: ${says}; score ${short(one.score)}, entropy ${short(one.entropy)}`;
}

function look(place, index) {
  view = { place, index };
  const says = at(`says-${place}`);
  if (says) says.textContent = describe(answers[place].explain.views[index]);
  document.querySelectorAll(".scatter .dot").forEach((dot) => {
    dot.classList.toggle("chosen", dot.getAttribute("data-view") === String(index) && dot.getAttribute("data-place") === String(place));
  });
  showPhoto();
}

/** Entropy against sharpness, and the line below which views were kept: entropy + lambda * sharpness = threshold. */
function scatterOf(answer, place) {
  const lambda = Number(answer.asked.options.lambda ?? 1), { threshold } = answer.explain;
  if (answer.method !== "stss" || !lambda || threshold === null) return null;
  const dots = answer.explain.views.map((one) => ({ ...one, x: one.entropy, y: (one.score - one.entropy) / lambda }));
  const [width, height, edge] = [440, 260, 58];
  const tick = (value) => (value === 0 ? "0" : value.toPrecision(2));
  const highX = Math.max(...dots.map((dot) => dot.x), 0.01) * 1.05;
  const lowY = Math.min(0, ...dots.map((dot) => dot.y)), highY = Math.max(...dots.map((dot) => dot.y), 0.001) * 1.08;
  const px = (x) => edge + (x / highX) * (width - edge - 10);
  const py = (y) => height - edge - ((y - lowY) / (highY - lowY)) * (height - edge - 12);
  const label = `Entropy against sharpness of ${dots.length} views; the ${answer.selected_views.length} kept ones lie below the dashed line`;
  const svg = draw("svg", { class: "scatter", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  svg.append(draw("line", { class: "axis", x1: edge, y1: py(lowY), x2: width, y2: py(lowY) }), draw("line", { class: "axis", x1: edge, y1: 0, x2: edge, y2: py(lowY) }));
  for (const part of [0, 0.5, 1]) {
    svg.append(draw("text", { x: px(highX * part), y: height - 22, "text-anchor": "middle" }, tick(highX * part)));
    svg.append(draw("text", { x: edge - 5, y: py(lowY + (highY - lowY) * part) + 4, "text-anchor": "end" }, tick(lowY + (highY - lowY) * part)));
  }
  svg.append(draw("text", { x: (edge + width) / 2, y: height - 5, "text-anchor": "middle" }, "entropy (nats)"));
  svg.append(draw("text", { x: 0, y: 0, "text-anchor": "middle", transform: `translate(11 ${height / 2 - 10}) rotate(-90)` }, "sharpness"));
  const clip = (x) => Math.min(Math.max(x, 0), highX);
  const from = clip(threshold - lambda * highY), to = clip(threshold - lambda * lowY);
  const rise = (x) => (threshold - x) / lambda;
  svg.append(draw("line", { class: "threshold", x1: px(from), y1: py(Math.min(rise(from), highY)), x2: px(to), y2: py(Math.max(rise(to), lowY)) }));
  for (const dot of dots.sort((a, b) => Number(a.kept) - Number(b.kept))) {
    const circle = draw("circle", { class: dot.kept ? "dot kept" : "dot", cx: px(dot.x), cy: py(dot.y), r: dot.kept ? 5 : 4, "data-view": dot.index, "data-place": place });
    circle.append(draw("title", {}, describe(dot)));
    circle.addEventListener("pointerenter", () => look(place, dot.index));
    circle.addEventListener("click", () => slice(place, dot.index));
    svg.append(circle);
  }
  return svg;
}

// ---- slice -----------------------------------------------------------------------------------------------------------

function stopSlice() {
  slicing?.abort();
  slicing = null;
  at("slice-stop").hidden = true;
}

async function slice(place, index) {
  stopSlice();
  const mine = slicing = new AbortController();
  document.querySelectorAll(".sheet button").forEach((button) => {
    button.setAttribute("aria-pressed", String(button.dataset.view === String(index) && button.closest(".answer") === at("answers").children[place]));
  });
  const asked = answers[place].asked, points = 13, radius = Number(asked.options.radius ?? 0.5) || 0.5;
  const { explain, top_k, ...settings } = request(asked);
  const body = { ...settings, view: index, points, radius };
  at("slice-panel").hidden = false;
  at("slice-stop").hidden = false;
  at("slice-note").textContent = `Entropy of ${index === 0 ? "the image itself" : `view ${index}`} when the context moves along two random directions of length ${radius}; the centre is the prompt. A flat floor means that the view's answer does not hang on the prompt.`;
  const rows = [];
  paint(rows, points);
  try {
    const response = await call("v1/slice", { method: "POST", body: form(body), signal: mine.signal });
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let rest = "", done = false; !done;) {
      const piece = await reader.read();
      done = piece.done;
      rest += piece.value ?? "";
      const lines = rest.split("\n");
      rest = lines.pop() ?? "";
      for (const line of lines.map((line) => JSON.parse(line))) {
        if (line.error) throw new Error(line.error.message);
        if (line.values) { rows.push(line.values); paint(rows, points); }
        if (line.done) {
          at("slice-legend").textContent = `At the prompt ${short(line.centre)}, lowest ${short(line.lowest)}, highest ${short(line.highest)} nats. The circle has radius ${radius}.`;
          at("slice").setAttribute("aria-label", at("slice-legend").textContent);
        }
      }
    }
  } catch (error) {
    if (error.name !== "AbortError") at("slice-legend").textContent = error.message;
  } finally {
    if (slicing === mine) stopSlice();
  }
}

/** From dark blue over green to yellow, evenly bright steps for any colour vision. */
const STOPS = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];
function colour(part) {
  const place = Math.min(Math.max(part, 0), 1) * (STOPS.length - 1), low = Math.min(Math.floor(place), STOPS.length - 2), rest = place - low;
  return `rgb(${STOPS[low].map((from, channel) => Math.round(from + rest * (STOPS[low + 1][channel] - from))).join(" ")})`;
}

/** Nats over which the colours reach at least: a flat floor shall look flat. */
const FLAT = 0.05;

function paint(rows, points) {
  const canvas = at("slice"), pen = canvas.getContext("2d"), cell = canvas.width / points;
  pen.clearRect(0, 0, canvas.width, canvas.height);
  const all = rows.flat(), low = Math.min(...all), high = Math.max(...all);
  rows.forEach((row, y) => row.forEach((value, x) => {
    pen.fillStyle = colour((value - low) / Math.max(high - low, FLAT));
    pen.fillRect(x * cell, canvas.height - (y + 1) * cell, cell + 0.5, cell + 0.5);
  }));
  if (rows.length < points) at("slice-legend").textContent = `Row ${rows.length} of ${points} …`;
  pen.strokeStyle = "#fff";
  pen.lineWidth = 2;
  pen.beginPath();
  pen.arc(canvas.width / 2, canvas.height / 2, canvas.width / 2 - cell / 2, 0, 2 * Math.PI);
  pen.stroke();
  pen.beginPath();
  pen.arc(canvas.width / 2, canvas.height / 2, 4, 0, 2 * Math.PI);
  pen.stroke();
}

// ---- taking it along -------------------------------------------------------------------------------------------------

const quote = (text) => `'${String(text).replaceAll("'", `'\\''`)}'`;

function asCurl() {
  const { explain, ...body } = request(chosen.a);
  const fields = Object.entries(body).map(([key, value]) => `  -F ${quote(`${key}=${typeof value === "object" ? JSON.stringify(value) : value}`)} \\`);
  return [`curl ${location.origin}/v1/classify \\`, ...fields, "  -F image=@image.jpg"].join("\n");
}

function asPython() {
  const { explain, ...body } = request(chosen.a);
  const python = JSON.stringify(body, null, 4).replace(/: true/g, ": True").replace(/: false/g, ": False");
  return `import base64, json, urllib.request\n\nbody = ${python}\nbody["image"] = base64.b64encode(open("image.jpg", "rb").read()).decode()\n` +
    `request = urllib.request.Request("${location.origin}/v1/classify", json.dumps(body).encode(), {"Content-Type": "application/json"})\n` +
    `for row in json.load(urllib.request.urlopen(request))["top"]:\n    print(row["class"], row["probability"])`;
}

function asJson() {
  return JSON.stringify(answers.map(({ asked, ms, work, ...answer }) => answer), null, 2);
}

const TEXTS = { curl: asCurl, python: asPython, json: asJson, link: () => location.href };

async function copy(kind) {
  const text = TEXTS[kind]();
  at("copied").textContent = text;
  at("copied").hidden = false;
  try {
    await navigator.clipboard.writeText(text);
    say("Copied.");
  } catch {
    say("This browser does not let the page copy; the text stands below to be taken.");
    getSelection()?.selectAllChildren(at("copied"));
  }
}

/** Settings go into the address, never the image; a drawn sample is named. */
function remember() {
  history.replaceState(null, "", `#${encodeURIComponent(JSON.stringify(chosen))}`);
}

function recall() {
  if (location.hash.length < 2) return;
  try {
    const kept = JSON.parse(decodeURIComponent(location.hash.slice(1)));
    const isMethod = (one) => one && typeof one.method === "string" && Number.isInteger(one.views) && typeof (one.options ??= {}) === "object";
    for (const key of ["model", "template", "prompt", "sample"]) if (typeof kept[key] === "string") chosen[key] = kept[key];
    if (Array.isArray(kept.classes)) chosen.classes = kept.classes.filter((name) => typeof name === "string");
    if (isMethod(kept.a)) chosen.a = kept.a;
    chosen.b = isMethod(kept.b) ? kept.b : null;
  } catch {
    complain("The link's settings cannot be read; the page starts with the usual ones.");
  }
}

// ---- start -----------------------------------------------------------------------------------------------------------

function fill(select, entries, value) {
  select.replaceChildren(...entries.map(([key, text]) => make("option", { value: key, selected: key === value }, text)));
}

async function start() {
  try {
    [methods, { data: models }, prompts, sets, limits] = await Promise.all(
      ["v1/methods", "v1/models", "v1/prompts", "v1/class_sets", "v1/limits"].map(list));
  } catch (error) {
    complain(error.message);
    return;
  }
  at("key-form").hidden = true;
  complain("");
  recall();
  if (!models.some((model) => model.id === chosen.model)) chosen.model = models[0].id;
  fill(at("model"), models.map((model) => [model.id, model.id]), chosen.model);
  fill(at("prompt"), [["", "by template"], ...prompts.map((prompt) => [prompt.name, prompt.name])], chosen.prompt);
  at("class-set").replaceChildren(make("option", { value: "" }, "Or take a list"),
    ...sets.map((set) => make("option", { value: set.name }, `${set.name} (${set.classes.length})`)));
  at("template").value = chosen.template;
  at("template").placeholder = "a photo of a {}.";
  at("compare").checked = Boolean(chosen.b);
  if (/^[a-z]+-\d+\.png$/.test(chosen.sample)) at("domain").value = chosen.sample.split("-")[0];
  showChips();
  showMethod("a");
  showMethod("b");
  showSamples();
  if (chosen.sample) takeSample(chosen.sample);
}

function listen() {
  const drop = at("drop");
  const files = (items) => [...(items ?? [])].find((file) => file.type.startsWith("image/") || file.type === "");
  for (const name of ["dragover", "dragenter"]) drop.addEventListener(name, (event) => { event.preventDefault(); drop.classList.add("over"); });
  drop.addEventListener("dragleave", () => drop.classList.remove("over"));
  document.addEventListener("dragover", (event) => event.preventDefault());
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    drop.classList.remove("over");
    const file = files(event.dataTransfer?.files);
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
  at("add-class").addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    addClasses(event.target.value);
    event.target.value = "";
  });
  at("class-set").addEventListener("change", (event) => {
    const set = sets.find((set) => set.name === event.target.value);
    if (set) { chosen.classes = [...set.classes]; showChips(); later(); }
    event.target.value = "";
  });
  at("model").addEventListener("change", (event) => { chosen.model = event.target.value; later(); });
  at("prompt").addEventListener("change", (event) => { chosen.prompt = event.target.value; at("template").disabled = Boolean(chosen.prompt); later(); });
  at("template").addEventListener("change", (event) => { chosen.template = event.target.value.trim(); later(); });
  at("compare").addEventListener("change", (event) => {
    chosen.b = event.target.checked ? { method: "zero-shot", views: 1, options: {} } : null;
    showMethod("b");
    later();
  });
  at("slice-stop").addEventListener("click", () => { stopSlice(); at("slice-legend").textContent = "Stopped."; });
  at("copy-panel").addEventListener("click", (event) => { const kind = event.target.dataset?.copy; if (kind) copy(kind); });
  at("key-form").addEventListener("submit", (event) => {
    event.preventDefault();
    sessionStorage.setItem("key", at("key").value);
    start();
  });
}

listen();
start();
