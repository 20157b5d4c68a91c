// @ts-check
// A surface in three dimensions on a canvas.

/** From dark blue over green to yellow, evenly bright steps for any colour vision. */
const STOPS = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];
function colour(part) {
  const place = Math.min(Math.max(part, 0), 1) * (STOPS.length - 1), low = Math.min(Math.floor(place), STOPS.length - 2), rest = place - low;
  return `rgb(${STOPS[low].map((from, channel) => Math.round(from + rest * (STOPS[low + 1][channel] - from))).join(" ")})`;
}

/** Height of the box in units of half its width. */
const TALL = 1.1;

/** From the box (x and y from -1 to 1, z from 0 to 1) to the canvas, and the depth for the order of drawing. */
function lens(canvas, { turn, tilt }) {
  const [sin, cos, flat, steep] = [Math.sin(turn), Math.cos(turn), Math.sin(tilt), Math.cos(tilt)];
  const scale = Math.min(canvas.width / 2.95, canvas.height / 2.75);
  return (x, y, z) => {
    const across = x * cos - y * sin, deep = x * sin + y * cos, high = (z - 0.5) * TALL;
    return [canvas.width / 2 + across * scale, canvas.height / 2 + (deep * flat - high * steep) * scale, deep * steep + high * flat];
  };
}

function path(pen, points) {
  pen.beginPath();
  points.forEach(([x, y], at) => (at ? pen.lineTo(x, y) : pen.moveTo(x, y)));
}

/** Draws rows of heights between `low` and `high`; rows that are not there yet are left free. */
export function paint(canvas, rows, points, low, high, angles) {
  const pen = canvas.getContext("2d"), at = lens(canvas, angles);
  const part = (value) => (value - low) / (high - low), side = (place) => (2 * place) / (points - 1) - 1;
  pen.clearRect(0, 0, canvas.width, canvas.height);
  const ink = getComputedStyle(canvas).color;
  pen.strokeStyle = ink;
  pen.lineWidth = 1;
  path(pen, [[-1, -1], [1, -1], [1, 1], [-1, 1], [-1, -1]].map(([x, y]) => at(x, y, 0)));
  pen.stroke();
  const faces = [];
  for (let y = 0; y + 1 < rows.length; y++) for (let x = 0; x + 1 < points; x++) {
    const corners = [[x, y], [x + 1, y], [x + 1, y + 1], [x, y + 1]];
    const drawn = corners.map(([x, y]) => at(side(x), side(y), part(rows[y][x])));
    const mean = corners.reduce((sum, [x, y]) => sum + part(rows[y][x]), 0) / 4;
    faces.push({ drawn, mean, depth: drawn.reduce((sum, point) => sum + point[2], 0) });
  }
  faces.sort((a, b) => a.depth - b.depth);
  pen.strokeStyle = "rgb(0 0 0 / 35%)";
  for (const face of faces) {
    path(pen, face.drawn);
    pen.closePath();
    pen.fillStyle = colour(face.mean);
    pen.fill();
    pen.stroke();
  }
  const middle = rows[points >> 1]?.[points >> 1];
  if (middle === undefined) return;
  const [x, y] = at(0, 0, part(middle));
  pen.beginPath();
  pen.arc(x, y, canvas.width / 70, 0, 7);
  Object.assign(pen, { fillStyle: "#d55e00", strokeStyle: "#ffffff", lineWidth: 2 });
  pen.fill();
  pen.stroke();
}
