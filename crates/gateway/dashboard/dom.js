// Creates and updates elements. A page is redrawn on every change; existing elements are updated in place, so that focus,
// selection and scroll position are kept.

const SVG = "http://www.w3.org/2000/svg";

/** An HTML element. Attributes that are `false`, `null` or `undefined` are left out; `on…` are listeners. */
export function h(tag, attributes, ...children) {
  return build(document.createElement(tag), attributes, children);
}

/** The same for SVG. */
export function svg(tag, attributes, ...children) {
  return build(document.createElementNS(SVG, tag), attributes, children);
}

function build(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === false || value === null || value === undefined) continue;
    if (name.startsWith("on")) {
      element.addEventListener(name.slice(2), (event) => element[LISTENERS][name]?.(event));
      (element[LISTENERS] ??= {})[name] = value;
    } else {
      element.setAttribute(name, value === true ? "" : value);
    }
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

const LISTENERS = Symbol("listeners");

/** Updates the children of `parent` to match `wanted`. Elements with the same `data-key` are matched. */
export function draw(parent, ...wanted) {
  const fresh = wanted.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
  updateChildren(parent, fresh.map((child) => (child instanceof Node ? child : document.createTextNode(child))));
}

function updateChildren(parent, fresh) {
  const keyed = new Map();
  for (const child of parent.childNodes) {
    if (child.dataset?.key !== undefined) keyed.set(child.dataset.key, child);
  }
  let at = parent.firstChild;
  for (const wanted of fresh) {
    const key = wanted.dataset?.key;
    const present = key === undefined ? at : keyed.get(key);
    if (present && present.parentNode === parent && isAlike(present, wanted)) {
      if (present !== at) parent.insertBefore(present, at);
      else at = at.nextSibling;
      update(present, wanted);
    } else {
      parent.insertBefore(wanted, at);
    }
  }
  while (at) {
    const next = at.nextSibling;
    parent.removeChild(at);
    at = next;
  }
}

function isAlike(present, wanted) {
  return present.nodeType === wanted.nodeType
    && present.nodeName === wanted.nodeName
    && present.dataset?.key === wanted.dataset?.key;
}

function update(present, wanted) {
  if (present.nodeType === Node.TEXT_NODE) {
    if (present.data !== wanted.data) present.data = wanted.data;
    return;
  }
  // Input in progress is not overwritten.
  if (present.hasAttribute("data-own")) return;
  for (const { name } of [...present.attributes]) {
    if (!wanted.hasAttribute(name) && name !== "open") present.removeAttribute(name);
  }
  for (const { name, value } of wanted.attributes) {
    if (present.getAttribute(name) !== value) present.setAttribute(name, value);
  }
  present[LISTENERS] = Object.assign(present[LISTENERS] ?? {}, wanted[LISTENERS]);
  updateChildren(present, [...wanted.childNodes]);
}
