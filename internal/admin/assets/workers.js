// The table of workers.

import { $, bar, code, h, hint, keyed, quantity, set, text } from './dom.js';
import { compact, count, join, percent, plural, seconds, since, unknown } from './format.js';

const cell = (cls, ...kids) => h('td', { class: cls }, ...kids);

// States: a mark for the eye, the word, and how bad it is.
const states = {
  ready: ['●', 'ok'], starting: ['○', 'idle'], syncing: ['◐', 'idle'], draining: ['◇', 'idle'],
  suspect: ['▲', 'degraded'], unhealthy: ['■', 'failed'], gone: ['✕', 'idle'],
};

// How a worker's overlap is known, as long as its feed of events is live or there is none; and the feed when it is not.
const modes = { exact: ['●', 'ok'], partial: ['◐', 'ok'], approximate: ['○', 'idle'] };
const feeds = { replaying: ['▲', 'degraded'], gap: ['▲', 'degraded'], connecting: ['▲', 'degraded'], stale: ['■', 'failed'] };
const down = 'feed down';
const isDown = ({ overlap: o }) => o.live < o.feeds;

export function workers() {
  let latest = null;
  const render = () => {
    const { workers: all, at } = latest;
    const words = $('filter').value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = all.filter((w) => {
      const line = [w.name, w.pool, w.state, w.address, w.engine, w.overlap.mode, isDown(w) ? `${down} ${w.overlap.state}` : '']
        .join(' ').toLowerCase();
      return words.every((word) => line.includes(word));
    });
    // One scale for all, in steps, so that bars compare and do not dance.
    const scale = {
      inFlight: step(Math.max(8, ...all.map((w) => w.in_flight))),
      queue: step(Math.max(1, ...all.map((w) => w.queue_s ?? 0))),
    };
    keyed($('workers'), found.map((w) => ({ ...w, at, scale })), (w) => `${w.pool}/${w.name}`, worker);
    const present = Object.keys(states).map((state) => ({ state, n: all.filter((w) => w.state === state).length }))
      .concat({ state: down, n: all.filter(isDown).length })
      .filter(({ n }) => n > 0);
    keyed($('tallies'), present, (p) => p.state, tally);
    text($('workers-count'), words.length ? `${found.length} of ${all.length}` : `${all.length}`);
    $('workers-box').hidden = all.length === 0;
    $('filter').parentElement.hidden = all.length === 0;
    hint($('no-workers'), all.length === 0, 'No workers yet. Start attache with ', code('--workers host:port'),
      ', or list them under ', code('workers:'), ' in the configuration or in a discovery file.');
  };
  $('filter').addEventListener('input', () => latest && render());
  return (state) => { latest = state; render(); };
}

// tally is how many workers are in a state; it filters by it, and by everything again.
function tally({ state }) {
  const node = h('button', { type: 'button' });
  node.addEventListener('click', () => {
    $('filter').value = $('filter').value === state ? '' : state;
    $('filter').dispatchEvent(new Event('input'));
  });
  return { node, update: ({ n }) => text(node, `${states[state]?.[0] ?? '▲'} ${n} ${state}`) };
}

const step = (v) => 2 ** Math.ceil(Math.log2(v));

function worker() {
  const name = h('b', { class: 'clip' }), where = h('small', { class: 'clip' });
  const mark = h('span', { class: 'mark', 'aria-hidden': 'true' }), word = h('span', { class: 'word' });
  const age = h('span', { class: 'dim' }), cause = h('small');
  const load = () => ({ value: h('span'), bar: bar() });
  const inFlight = load(), queue = load(), kv = load(), cached = load();
  const known = overlap();
  const ttft = h('span'), requests = h('span'), failures = h('small'), button = h('button', { type: 'button' });
  const loaded = (l) => cell('num load', l.value, l.bar.node);
  const node = h('tr', {},
    cell('who', h('div', { class: 'clip' }, name), where),
    cell('state', h('div', { class: 'clip' }, mark, word, ' ', age), cause),
    ...[inFlight, queue, kv].map(loaded), known.node, loaded(cached),
    cell('num', ttft), cell('num wide', requests, failures), cell('num', button));
  let current = null;
  button.addEventListener('click', () => drain(current, button));
  return {
    node,
    update(w) {
      current = w;
      const [sign, level] = states[w.state] ?? ['?', 'idle'];
      set(node, { 'data-level': level });
      text(name, w.name);
      text(where, [w.address, w.engine, w.pool].filter(Boolean).join(' · '));
      set(where, { title: `${where.textContent}, epoch ${w.epoch}, named by ${w.source}` });
      text(mark, sign);
      text(word, w.state);
      text(age, since(w.since, w.at) === unknown ? '' : `for ${since(w.since, w.at)}`);
      text(cause, w.cause);
      set(cause, { title: w.cause });
      quantity(inFlight.value, count(w.in_flight));
      inFlight.bar.fill(w.in_flight / w.scale.inFlight);
      const inEngine = `${join(count(w.engine_running))} running, ${join(count(w.engine_waiting))} waiting`;
      set(inFlight.value, { title: `the engine says ${inEngine}` });
      quantity(queue.value, seconds(w.queue_s));
      queue.bar.fill(w.queue_s / w.scale.queue);
      quantity(kv.value, percent(w.kv_usage));
      kv.bar.fill(w.kv_usage);
      kv.bar.node.className = `bar ${w.kv_usage >= 0.97 ? 'full' : w.kv_usage >= 0.9 ? 'hot' : ''}`;
      set(kv.value, { title: `${join(count(w.cached_blocks_known))} cached blocks known to the index` });
      known.update(w);
      quantity(cached.value, percent(w.cached_share));
      cached.bar.fill(w.cached_share);
      cached.bar.node.className = 'bar s2';
      quantity(ttft, seconds(w.ttft_p50_s));
      text(requests, join(count(w.requests_total)));
      text(failures, w.failures_total ? `${join(count(w.failures_total))} failed` : '');
      text(button, w.state === 'draining' ? 'Give back' : 'Drain');
      button.hidden = w.state === 'gone';
      set(button, { 'aria-label': `${button.textContent} ${w.name}` });
    },
  };
}

// overlap is the cell that says how it is known what a worker holds, and what that is by tier.
function overlap() {
  const mark = h('span', { class: 'mark', 'aria-hidden': 'true' }), word = h('b'), trouble = h('small'), tiers = h('small');
  const node = cell('overlap', h('div', {}, mark, word), trouble, tiers);
  return {
    node,
    update({ overlap: o, at }) {
      const [sign, level] = (o.live < o.feeds && feeds[o.state]) || modes[o.mode] || ['?', 'idle'];
      const lasts = since(o.since, at) === unknown ? '' : ` for ${since(o.since, at)}`;
      text(mark, sign);
      text(word, o.mode);
      set(mark, { 'data-level': level });
      set(word, { 'data-level': level });
      text(trouble, o.live < o.feeds ? `feed ${o.state}` : '');
      set(trouble, { 'data-level': level });
      const held = Object.entries(o.held_blocks).filter(([, n]) => n > 0);
      text(tiers, held.map(([tier, n]) => `${join(compact(n))} ${tier}`).join(' · '));
      set(node, { title: o.feeds === 0 ? 'No feed of KV events: known by what attache itself sent there'
        : [`${o.live} of ${plural(o.feeds, 'feed')} of KV events live; ${o.state}${lasts}`, o.reason,
          held.map(([tier, n]) => `${join(count(n, 'blocks'))} on ${tier}`).join(', ')].filter(Boolean).join('\n') });
    },
  };
}

async function drain(w, button) {
  const on = w.state !== 'draining';
  if (on && !confirm(`Drain ${w.name}? It gets no new requests; those it has go on.`)) return;
  button.disabled = true;
  try {
    const answer = await fetch(`api/v1/workers/${encodeURIComponent(w.name)}/drain`, { method: on ? 'POST' : 'DELETE' });
    if (!answer.ok) alert((await answer.json()).error);
  } catch (e) {
    alert(`attache could not be asked: ${e.message}`);
  }
  button.disabled = false;
}
