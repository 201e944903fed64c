// SPDX-License-Identifier: Apache-2.0
// The page: signs in, shows the cluster as it changes, assigns. The token is kept in this module
// alone and goes with the tab.

import { Cluster, SIGNS, contains, rate, title } from "./cluster.js";
import { $, element, keep, svg } from "./dom.js";
import { picture } from "./picture.js";
import { Refused, assign, follow } from "./stream.js";

const MORE = { nodes: 24, devices: 100 };
let cluster = new Cluster();
let coming = null; // a cluster that is told anew, until all of it is there
let token = "";
let may = {};
let stop = null;
let chosen = null;
let waiting = false;
const shown = { ...MORE };

// A proxy in front may sign everybody in: the first try is without a token.
start(true);

async function start(silent = false) {
  stop?.abort();
  const control = new AbortController();
  stop = control;
  try {
    await follow(token, control.signal, told, (text) => { $("connection").textContent = text; });
  } catch (error) {
    if (control.signal.aborted) return;
    leave(silent ? "" : error instanceof Refused ? error.message : String(error));
  }
}

function told(event, data) {
  if (event === "begin") coming = new Cluster();
  else if (event === "hello") {
    may = data.may;
    $("user").textContent = data.user;
    $("who").hidden = false;
    $("connection").textContent = "Loading";
  } else if (event === "rows") (coming ?? cluster).take(data);
  else if (event === "all") {
    cluster = coming;
    coming = null;
    $("connection").textContent = "Live";
    $("enter").hidden = true;
    $("board").hidden = false;
  }
  later();
}

function leave(message) {
  stop?.abort();
  token = "";
  cluster = new Cluster();
  for (const id of ["board", "who"]) $(id).hidden = true;
  $("connection").textContent = "";
  $("refused").textContent = message;
  $("enter").hidden = false;
  $("token").focus();
  draw();
}

function later() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    draw();
  });
}

function draw() {
  const words = $("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const all = cluster.devices();
  const devices = all.filter((device) => contains(device, words));
  const nodes = cluster.nodes(all).filter((node) => contains(node, words));
  const links = cluster.links().filter((link) => contains(link, words));
  $("count").textContent = `${devices.length} of ${all.length} devices`;
  keep($("nodes"), nodes.slice(0, shown.nodes), (node) => node.name, card);
  keep($("devices"), devices.slice(0, shown.devices).map((d) => ({ ...d, may: may.assign })),
    (device) => device.name, deviceRow);
  const most = Math.max(1, ...links.flatMap((l) => [l.receivedBytesPerSecond, l.sentBytesPerSecond]));
  keep($("links"), links.map((link) => ({ ...link, most })),
    (link) => `${link.namespace}/${link.claim}/${link.device}`, linkRow);
  $("more-nodes").hidden = nodes.length <= shown.nodes;
  $("more-devices").hidden = devices.length <= shown.devices;
  $("no-nodes").hidden = nodes.length > 0;
  $("no-devices").hidden = devices.length > 0;
  $("no-links").hidden = links.length > 0 || !may.claims;
  $("no-claims").hidden = may.claims !== false;
}

function card(node) {
  return element("li", { class: "node" }, element("h3", {}, node.name), picture(node));
}

function cell(label, ...children) {
  return element("td", { "data-label": label }, ...children);
}

function deviceRow(device) {
  const sign = element("span", { class: device.sign }, `${SIGNS[device.sign]} ${device.word}`);
  const users = device.uses.map((use) => element("div", {}, use.pods.join(", ") || use.claim,
    element("small", {}, `${use.claim}${use.on && use.on !== device.node ? ` on ${use.on}` : ""}`)));
  const button = element("button", { type: "button", "data-focus": "assign",
    "aria-label": `Assign ${title(device)}`, onclick: () => ask(device) }, "Assign…");
  return element("tr", { id: `device-${device.name}` },
    element("th", { scope: "row" }, title(device), element("small", {}, device.name)),
    cell("Node", device.node),
    cell("State", sign, element("small", {}, device.message)),
    cell("Namespace", device.namespace || "–"),
    cell("Used by", ...(users.length ? users : ["–"])),
    element("td", {}, ...(device.may ? [button] : [])));
}

function linkRow(link) {
  const number = (label, value, most) => {
    const made = cell(label, rate(value));
    made.className = "number";
    made.append(svg("svg", { class: "bar", viewBox: "0 0 100 6", preserveAspectRatio: "none",
      "aria-hidden": "true" }, svg("rect", { width: 100, height: 6 }),
    svg("rect", { width: Math.round((100 * value) / most), height: 6 })));
    return made;
  };
  const trip = cell("Round trip", `${(link.rttMicroseconds / 1000).toFixed(1)} ms`);
  trip.className = "number";
  const wire = { true: "encrypted", false: "in clear" }[link.encrypted] ?? "–";
  const time = new Date(link.time);
  return element("tr", {},
    element("th", { scope: "row" }, link.from), cell("To", link.to),
    cell("Device", link.device), cell("Claim", `${link.namespace}/${link.claim}`),
    number("In", link.receivedBytesPerSecond, link.most), number("Out", link.sentBytesPerSecond, link.most),
    trip, cell("Wire", wire, element("small", {}, link.retransmits ? `${link.retransmits} sent again` : "")),
    cell("As of", element("time", { datetime: link.time },
      Number.isNaN(time.valueOf()) ? "–" : time.toLocaleTimeString())));
}

function ask(device) {
  chosen = device;
  $("assign-device").textContent = `${title(device)} (${device.name}) on ${device.node || "no node"}`;
  $("namespace").value = device.namespace;
  $("assign-error").textContent = "";
  $("assign-none").hidden = !device.namespace;
  keep($("namespaces"), cluster.namespaces(), (name) => name, (name) => element("option", { value: name }));
  $("assign").showModal();
  $("namespace").select();
}

async function send(namespace) {
  const buttons = [$("assign-yes"), $("assign-none")];
  for (const button of buttons) button.disabled = true;
  try {
    await assign(token, chosen.name, namespace);
    $("assign").close();
    say(namespace ? `${title(chosen)}: assigned to ${namespace}` : `${title(chosen)}: withdrawn`);
  } catch (error) {
    $("assign-error").textContent = error.message;
  } finally {
    for (const button of buttons) button.disabled = false;
  }
}

function say(text) {
  $("said").textContent = text;
  setTimeout(() => {
    if ($("said").textContent === text) $("said").textContent = "";
  }, 6000);
}

$("login").addEventListener("submit", (event) => {
  event.preventDefault();
  token = $("token").value.trim();
  $("token").value = "";
  $("refused").textContent = "";
  start();
});
$("leave").addEventListener("click", () => leave(""));
$("search").addEventListener("submit", (event) => event.preventDefault());
$("filter").addEventListener("input", () => {
  Object.assign(shown, MORE);
  later();
});
for (const list of ["nodes", "devices"]) {
  $(`more-${list}`).addEventListener("click", () => {
    shown[list] += MORE[list];
    later();
  });
}
$("assign-form").addEventListener("submit", (event) => {
  event.preventDefault();
  send($("namespace").value);
});
$("assign-none").addEventListener("click", () => send(""));
// The button that was pressed may have been made anew meanwhile: the browser cannot go back to it.
$("assign").addEventListener("close", () => {
  $(`device-${chosen.name}`)?.querySelector("button")?.focus();
});
$("assign-cancel").addEventListener("click", () => $("assign").close());
