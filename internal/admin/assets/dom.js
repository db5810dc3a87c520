// Small helpers over the DOM. Text only ever goes in as text: there is no markup made from strings on this page.

export const $ = (id) => document.getElementById(id);

export function h(tag, attrs = {}, ...kids) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attrs)) node.setAttribute(name, value);
  node.append(...kids);
  return node;
}

export function svg(tag, attrs = {}, ...kids) {
  const node = document.createElementNS('http://www.w3.org/2000/svg', tag);
  set(node, attrs);
  node.append(...kids);
  return node;
}

export function set(node, attrs) {
  for (const [name, value] of Object.entries(attrs)) {
    if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
  }
}

export function text(node, s) {
  if (node.textContent !== s) node.textContent = s;
}

// quantity writes [number, unit] with the unit small beside the number.
export function quantity(node, [number, unit]) {
  if (!node.firstChild) node.append('', h('span', { class: 'unit' }));
  if (node.firstChild.data !== number) node.firstChild.data = number;
  text(node.lastChild, unit);
}

// bar is a horizontal bar; fill sets it to a share of its length. It repeats a figure beside it, so it is not read out.
export function bar(kind = '') {
  const fill = h('i');
  const node = h('span', { class: `bar ${kind}`, 'aria-hidden': 'true' }, fill);
  return { node, fill: (share) => { fill.style.transform = `scaleX(${Math.min(1, Math.max(0, share || 0))})`; } };
}

// hint fills in and shows the text of an empty section.
export function hint(node, visible, ...parts) {
  node.hidden = !visible;
  if (visible && !node.firstChild) node.append(...parts);
}
export const code = (s) => h('code', {}, s);

// keyed keeps one row per item: make(item) returns {node, update(item)}. Rows are moved, not rebuilt, so that focus and
// open details survive.
const rowsOf = new WeakMap();
export function keyed(parent, items, key, make) {
  const old = rowsOf.get(parent) ?? new Map();
  const rows = new Map();
  for (const item of items) {
    let k = key(item);
    while (rows.has(k)) k += '\u0000'; // a duplicate name still gets its own row
    const row = old.get(k) ?? make(item);
    row.update(item);
    rows.set(k, row);
  }
  for (const [k, row] of old) if (!rows.has(k)) row.node.remove();
  let at = parent.firstElementChild;
  for (const { node } of rows.values()) {
    if (node === at) at = at.nextElementSibling;
    else parent.insertBefore(node, at);
  }
  rowsOf.set(parent, rows);
}
