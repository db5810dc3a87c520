// A line chart of the last minutes as SVG. Lines differ by dash as well as by colour.

import { h, set, svg, text } from './dom.js';
import { clock, join, known } from './format.js';

const height = 136, left = 52, right = 6, top = 10, bottom = 20;

// nice is the smallest of 1, 2, 5, 10 ... that is not below v.
function nice(v) {
  const power = 10 ** Math.floor(Math.log10(v));
  return [1, 2, 5, 10].map((m) => m * power).find((m) => m >= v * 0.9999) ?? v;
}

// tick writes a round figure without decimals that are 0.
const tick = (quantity) => join(quantity).replace(/\.0+(?!\d)|(\.\d*?[1-9])0+(?!\d)/, '$1');

// chart(title, format, lines, max) with lines [{name, style, area}] and a fixed upper end, or none to fit the data.
export function chart(title, format, lines, max) {
  const legend = lines.map(({ name, style }) => {
    const value = h('b');
    const key = svg('svg', { viewBox: '0 0 18 8', 'aria-hidden': 'true' },
      svg('path', { d: 'M1 4h16', class: `line ${style}` }));
    return { value, node: h('span', { class: 'legend' }, key, h('span', {}, name), value) };
  });
  const when = h('span', { class: 'legend' });
  const plot = svg('svg', { role: 'img' });
  const node = h('figure', { class: 'chart' },
    h('figcaption', {}, h('h2', {}, title), when), h('div', { class: 'legends' }, ...legend.map((l) => l.node)), plot);

  const grid = [0, 0.5, 1].map((share) => {
    const y = top + (height - top - bottom) * (1 - share);
    const label = svg('text', { x: left - 8, y: y + 4, 'text-anchor': 'end' });
    const rule = svg('line', { class: 'grid', x1: left, y1: y, y2: y });
    plot.append(rule, label);
    return { share, label, rule };
  });
  const from = svg('text', { x: left, y: height - 4 });
  const to = svg('text', { y: height - 4, 'text-anchor': 'end' }, 'now');
  const cursor = svg('line', { class: 'cursor', y1: top, y2: height - bottom, visibility: 'hidden' });
  const area = svg('path', { class: 'area' });
  const paths = lines.map(({ style }) => svg('path', { class: `line ${style}` }));
  const quiet = svg('text', { 'text-anchor': 'middle', y: (height - bottom + top) / 2 - 8 }, 'no requests yet');
  plot.append(area, ...paths, cursor, from, to, quiet);

  let data = { start: 0, step: 1, columns: lines.map(() => []) };
  let pointed = null; // the pointer's x on the plot
  let width = 0;

  function draw() {
    if (!width) return;
    const { columns, step, start } = data;
    const n = columns[0].length;
    const inner = width - left - right;
    const highest = Math.max(0, ...columns.flat().filter(known));
    const ceiling = max ?? nice(highest || 1);
    const x = (i) => left + (n > 1 ? (i * inner) / (n - 1) : inner);
    const y = (v) => top + (height - top - bottom) * (1 - Math.min(v / ceiling, 1));

    set(plot, { viewBox: `0 0 ${width} ${height}` });
    for (const { share, label, rule } of grid) {
      text(label, tick(format(share * ceiling)));
      set(rule, { x2: width - right });
    }
    set(to, { x: width - right });
    set(quiet, { x: left + inner / 2, visibility: highest > 0 ? 'hidden' : 'visible' });
    text(from, n ? `${Math.round((n * step) / 60) || 1} min ago` : '');
    columns.forEach((column, c) => {
      let d = '';
      column.forEach((v, i) => {
        if (!known(v)) return;
        const joined = i > 0 && known(column[i - 1]);
        d += `${joined ? 'L' : 'M'}${x(i).toFixed(1)} ${y(v).toFixed(1)}`;
        if (!joined && !known(column[i + 1])) d += 'h.1'; // a lone point shows as a dot
      });
      set(paths[c], { d });
      if (lines[c].area) set(area, { d: n ? `${d}V${y(0)}H${x(0)}Z` : '' });
    });
    const i = pointed === null ? n - 1 : Math.round(((pointed - left) / inner) * (n - 1));
    const at = Math.min(Math.max(i, 0), n - 1);
    set(cursor, pointed === null || !n ? { visibility: 'hidden' } : { visibility: 'visible', x1: x(at), x2: x(at) });
    text(when, pointed === null || !n ? '' : clock(new Date(start + at * step * 1000)));
    legend.forEach((l, c) => text(l.value, join(format(columns[c][at]))));
    set(plot, { 'aria-label': `${title}, last minutes. Now ${lines.map((l, c) =>
      `${l.name} ${join(format(columns[c][n - 1]))}`).join(', ')}. Highest ${join(format(highest))}.` });
  }

  new ResizeObserver(([entry]) => {
    width = Math.round(entry.contentRect.width);
    draw();
  }).observe(plot);
  plot.addEventListener('pointermove', (e) => { pointed = e.offsetX; draw(); });
  plot.addEventListener('pointerleave', () => { pointed = null; draw(); });
  return {
    node,
    update(start, step, columns) {
      data = { start, step, columns: columns.map((c) => c ?? []) };
      draw();
    },
  };
}
