// Build DOM elements. Text is inserted only as text nodes, so stored data is never interpreted as HTML.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, shade] of Object.entries(value)) node.style.setProperty(key, shade);
    else if (name === "value") node.value = value;
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  add(node, children);
  return node;
}

function add(node, children) {
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === false) continue;
    node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

export function el(tag, props, ...children) {
  return fill(document.createElement(tag), props, children);
}

export function svg(tag, props, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

export function set(node, ...children) {
  node.replaceChildren();
  add(node, children);
  return node;
}

export function link(view, params, ...children) {
  return el("a", { href: address(view, params) }, ...children);
}

// URL of a view: #/view?name=value. Empty values are omitted; a list becomes a repeated parameter.
export function address(view, params = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    for (const item of Array.isArray(value) ? value : [value]) {
      if (item !== undefined && item !== null && item !== "") query.append(name, item);
    }
  }
  const text = query.toString();
  return `#/${view === "runs" ? "" : view}${text ? `?${text}` : ""}`;
}

export function select(label, name, options, chosen, change) {
  const box = el("select", { name, onchange: (event) => change(event.target.value) });
  for (const [value, text] of options) {
    box.append(el("option", { value, selected: value === chosen }, text));
  }
  return el("label", { class: "field" }, el("span", {}, label), box);
}
