// SPDX-License-Identifier: Apache-2.0
// Makes elements and keeps lists of them. Every text is set as text: nothing here parses markup.

export const $ = (id) => document.getElementById(id);

export function element(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

export function svg(name, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function filled(made, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "onclick") made.addEventListener("click", value);
    else if (value !== undefined && value !== "") made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

// Makes the children of `parent` those of `items`, in their order. `key` tells items apart; an
// element is built anew only when its item's data changed, and keeps the focus that was in it.
export function keep(parent, items, key, build) {
  const old = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  let place = parent.firstElementChild;
  for (const item of items) {
    const name = key(item);
    const data = JSON.stringify(item);
    let child = old.get(name);
    old.delete(name);
    if (!child || child.kept !== data) {
      const fresh = build(item);
      fresh.dataset.key = name;
      fresh.kept = data;
      if (child) {
        const held = child.contains(document.activeElement) ? document.activeElement.dataset.focus : "";
        if (child === place) place = fresh;
        child.replaceWith(fresh);
        if (held) fresh.querySelector(`[data-focus="${held}"]`)?.focus();
      }
      child = fresh;
    }
    if (child === place) place = place.nextElementSibling;
    else parent.insertBefore(child, place);
  }
  for (const child of old.values()) child.remove();
}
