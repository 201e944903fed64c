// SPDX-License-Identifier: Apache-2.0
// What the server has told, and what follows from it. No element of the page is known here.

const TROUBLE = new Set(["NotReady", "NotFound", "LinkLost", "NoFreeUSBIPPort"]);
export const SIGNS = { free: "○", given: "◐", used: "●", bad: "▲" };

export class Cluster {
  constructor() {
    this.sections = { devices: new Map(), slices: new Map(), claims: new Map(), namespaces: new Map() };
  }

  take(changes) {
    for (const [section, rows] of Object.entries(changes)) {
      for (const [key, row] of Object.entries(rows)) {
        if (row === null) this.sections[section].delete(key);
        else this.sections[section].set(key, row);
      }
    }
  }

  namespaces() {
    return [...this.sections.namespaces.keys()].sort();
  }

  // Devices in name order, each with its state and the uses that claims have of it.
  devices() {
    const uses = new Map();
    for (const [claim, row] of this.sections.claims) {
      for (const use of row.uses) {
        const place = `${use.node}/${use.device}`;
        if (!uses.has(place)) uses.set(place, []);
        uses.get(place).push({ claim, on: row.node, ...use });
      }
    }
    const found = [...this.sections.devices].map(([name, row]) => ({
      name, ...row, uses: uses.get(`${row.node}/${row.is.name ?? name}`) ?? [], ...state(row),
    }));
    return found.sort((a, b) => compare(a.name, b.name));
  }

  // Nodes in name order, each with its hubs, who has their ports, and its devices' places.
  nodes(devices) {
    const nodes = new Map();
    const node = (name) => {
      if (!nodes.has(name)) nodes.set(name, { name, hubs: {}, taken: {}, places: {}, devices: [] });
      return nodes.get(name);
    };
    for (const row of this.sections.slices.values()) {
      const one = node(row.node);
      for (const [hub, count] of Object.entries(row.hubs ?? {})) one.hubs[hub] = (one.hubs[hub] ?? 0) + count;
      Object.assign(one.places, row.devices ?? {});
    }
    for (const [claim, row] of this.sections.claims) {
      for (const [name, hub] of row.ports) (node(name).taken[hub] ??= []).push(claim);
    }
    for (const device of devices) if (device.node) node(device.node).devices.push(device);
    return [...nodes.values()].sort((a, b) => compare(a.name, b.name));
  }

  // Links, the busiest first.
  links() {
    const found = [...this.sections.claims.values()].flatMap((row) => row.links);
    const rate = (link) => link.receivedBytesPerSecond + link.sentBytesPerSecond;
    return found.sort((a, b) => rate(b) - rate(a) || compare(a.claim, b.claim));
  }
}

// The one sign of a device: trouble before use, use before assignment.
function state(row) {
  const of = (type) => row.states[type] ?? { status: "", reason: "", message: "" };
  const trouble = ["Ready", "Attached"].map(of).find((found) => TROUBLE.has(found.reason));
  if (trouble) return { sign: "bad", word: trouble.reason, message: trouble.message };
  if (of("Attached").status === "True") {
    return { sign: "used", word: "In use", message: of("Attached").message };
  }
  const assigned = of("Assigned");
  if (assigned.reason === "InProgress") {
    return { sign: "given", word: "In progress", message: assigned.message };
  }
  if (assigned.status === "True") return { sign: "given", word: "Assigned", message: "" };
  return { sign: "free", word: "Free", message: "" };
}

export function title(device) {
  const named = [device.is.manufacturer, device.is.product].filter(Boolean).join(" ");
  return named || [device.is.vendorID, device.is.productID].filter(Boolean).join(":") || device.name;
}

export function rate(bytes) {
  const units = ["B/s", "kB/s", "MB/s", "GB/s"];
  let value = bytes;
  while (value >= 999.5 && units.length > 1) {
    value /= 1000;
    units.shift();
  }
  return `${value.toFixed(units[0] === "B/s" || value >= 99.5 ? 0 : 1)} ${units[0]}`;
}

export function contains(item, words) {
  if (!words.length) return true;
  const text = JSON.stringify(item).toLowerCase();
  return words.every((word) => text.includes(word));
}

const order = new Intl.Collator("en", { numeric: true });
function compare(a, b) {
  return order.compare(a, b);
}
