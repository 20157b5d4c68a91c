// @ts-check
// The question as curl, Python, JSON or a link.
import { at } from "./dom.js";
import { request } from "./server.js";
import { state } from "./state.js";
import { say } from "./tell.js";

const quote = (text) => `'${String(text).replaceAll("'", `'\\''`)}'`;

function asCurl() {
  const { explain, ...body } = request(state.chosen.a);
  const fields = Object.entries(body).map(([key, value]) => `  -F ${quote(`${key}=${typeof value === "object" ? JSON.stringify(value) : value}`)} \\`);
  return [`curl ${location.origin}/v1/classify \\`, ...fields, "  -F image=@image.jpg"].join("\n");
}

function asPython() {
  const { explain, ...body } = request(state.chosen.a);
  const python = JSON.stringify(body, null, 4).replace(/: true/g, ": True").replace(/: false/g, ": False");
  return `import base64, json, urllib.request\n\nbody = ${python}\nbody["image"] = base64.b64encode(open("image.jpg", "rb").read()).decode()\n` +
    `request = urllib.request.Request("${location.origin}/v1/classify", json.dumps(body).encode(), {"Content-Type": "application/json"})\n` +
    `for row in json.load(urllib.request.urlopen(request))["top"]:\n    print(row["class"], row["probability"])`;
}

function asJson() {
  return JSON.stringify(state.answers.map(({ asked, work, ...answer }) => answer), null, 2);
}

const TEXTS = { curl: asCurl, python: asPython, json: asJson, link: () => location.href };

export async function copy(kind) {
  const text = TEXTS[kind]();
  at("copied").textContent = text;
  at("copied").hidden = false;
  try {
    await navigator.clipboard.writeText(text);
    say("Copied.");
  } catch {
    say("This browser does not allow the page to copy; take the text below.");
    getSelection()?.selectAllChildren(at("copied"));
  }
}
