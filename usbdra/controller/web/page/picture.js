// SPDX-License-Identifier: Apache-2.0
// Draws one node: its buses, hubs and devices as they are plugged in, and its ports for devices of
// other nodes. The kernel's bus id says the place: 1-2.4 is bus 1, port 2, a hub there, its port 4.

import { SIGNS, title } from "./cluster.js";
import { svg } from "./dom.js";

const WIDTH = 340;
const ROW = 26;
const STEP = 20;
const SOCKETS = 32;
const HUBS = { high: "high speed", super: "super speed" };

export function picture(node) {
  const rows = [...plugged(node), ...ports(node)];
  const drawing = svg("svg", { viewBox: `0 0 ${WIDTH} ${Math.max(1, rows.length) * ROW}`, role: "group",
    "aria-label": `Ports and devices of ${node.name}` });
  const last = [];
  rows.forEach((row, number) => {
    const y = number * ROW + ROW / 2;
    const x = 8 + row.depth * STEP;
    if (row.depth > 0) {
      const from = last[row.depth - 1] ?? y;
      drawing.append(svg("path", { class: "wire", d: `M${x - STEP + 5} ${from + 7}V${y}H${x - 3}` }));
    }
    last[row.depth] = y;
    drawing.append(row.draw(x, y));
  });
  return drawing;
}

// Rows of the tree, depth first: buses, hubs that are only known by what is behind them, devices.
function plugged(node) {
  const tree = new Map();
  const loose = [];
  for (const device of node.devices) {
    if (device.states.Ready?.reason === "NotFound") continue;
    const chain = /^(\d+)-(\d+(?:\.\d+)*)$/.exec(node.places[device.is.name ?? device.name]?.busID ?? "");
    if (!chain) loose.push(device);
    else {
      let branch = child(tree, Number(chain[1]));
      for (const port of chain[2].split(".")) branch = child(branch.children, Number(port));
      branch.device = device;
    }
  }
  const rows = [];
  for (const [bus, branch] of sorted(tree)) {
    rows.push(box(0, `Bus ${bus}`));
    walk(branch.children, 1, rows);
  }
  rows.push(...loose.map((device) => leaf(0, "", device)));
  return rows;
}

function child(branches, key) {
  if (!branches.has(key)) branches.set(key, { children: new Map(), device: null });
  return branches.get(key);
}

function sorted(branches) {
  return [...branches].sort(([a], [b]) => a - b);
}

function walk(branches, depth, rows) {
  for (const [port, branch] of sorted(branches)) {
    rows.push(branch.device ? leaf(depth, `${port}: `, branch.device) : box(depth, `${port}: hub`));
    walk(branch.children, depth + 1, rows);
  }
}

function box(depth, text) {
  return { depth, draw: (x, y) => svg("g", {},
    svg("rect", { class: "box", x: x - 3, y: y - 7, width: 16, height: 14, rx: 3 }),
    svg("text", { class: "quiet", x: x + 20, y: y + 4 }, text)) };
}

function leaf(depth, port, device) {
  const room = Math.floor((WIDTH - 40 - depth * STEP) / 7);
  const text = shortened(port + title(device), room);
  return { depth, draw: (x, y) => svg("a", { href: `#device-${device.name}`,
    "aria-label": `${port}${title(device)}, ${device.word}` },
    svg("title", {}, `${device.name}: ${device.word}`),
    svg("text", { class: `mark ${device.sign}`, x: x - 2, y: y + 5 }, SIGNS[device.sign]),
    svg("text", { x: x + 16, y: y + 4 }, text)) };
}

// A row of text and one of sockets for each hub that takes devices of other nodes.
function ports(node) {
  return Object.keys({ ...node.hubs, ...node.taken }).sort().flatMap((hub) => {
    const claims = node.taken[hub] ?? [];
    const count = Math.max(node.hubs[hub] ?? 0, claims.length);
    const text = `Ports for ${HUBS[hub] ?? hub}: ${claims.length} of ${count} used`;
    return [
      { depth: 0, draw: (x, y) => svg("text", { class: "quiet", x: x - 2, y: y + 4 }, text) },
      { depth: 0, draw: (x, y) => sockets(x, y, count, claims, text) },
    ];
  });
}

function sockets(x, y, count, claims, text) {
  const shown = Math.min(count, SOCKETS);
  const size = Math.min(18, (WIDTH - 16) / Math.max(shown, 1) - 2);
  const group = svg("g", { role: "img", "aria-label": text });
  for (let number = 0; number < shown; number += 1) {
    const claim = claims[number];
    group.append(svg("rect", { class: claim ? "socket taken" : "socket", x: x - 2 + number * (size + 2),
      y: y - 9, width: size, height: 14, rx: 2 }, svg("title", {}, claim ?? "free")));
  }
  return group;
}

function shortened(text, room) {
  const letters = [...text];
  return letters.length > room ? `${letters.slice(0, room - 1).join("")}…` : text;
}
