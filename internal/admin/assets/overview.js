// The top of the page: state, Envoys, replicas, warnings, the figures of the last minute, and the curves of the last five.

import { $, h, keyed, quantity, set, text } from './dom.js';
import { chart } from './chart.js';
import { count, join, known, percent, rate, seconds, span } from './format.js';

const levels = { ok: 'ready', degraded: 'degraded', failed: 'not ready' };

export function overview() {
  const put = tiles();
  const curves = charts();
  return ({ at, status, readiness, workers, series }) => {
    set($('pill'), { 'data-level': readiness.state });
    text($('pill'), levels[readiness.state] ?? readiness.state);
    text($('meta'), [status.version, status.mode, status.replica && `replica ${status.replica}`,
      `up ${span(status.uptime_s)}`].filter(Boolean).join(' · '));
    document.title = `${readiness.ready ? join(rate(status.requests_per_s)) : 'NOT READY'} · attache`;
    keyed($('envoys'), envoysOrNone(status.envoys), (e) => e.node, () => envoy(at));
    keyed($('replicas'), status.replicas, (r) => r.name, replica);
    keyed($('notices'), [
      ...readiness.checks.filter((c) => c.state !== 'ok').map((c) => ({ level: c.state, about: c.name, detail: c.detail })),
      ...status.warnings.map((detail) => ({ level: 'degraded', about: 'warning', detail })),
    ], (n) => n.about + n.detail, notice);
    put(status, workers);
    curves(series);
  };
}

const nobody = 'no Envoy connected';
const envoysOrNone = (envoys) => (envoys.length ? envoys : [{ node: nobody }]);

function envoy() {
  const name = h('span');
  const rest = h('span', { class: 'dim' });
  const node = h('li', {}, name, rest);
  return {
    node,
    update(e) {
      text(name, e.node === nobody ? '○ no Envoy connected' : `● ${e.node}`);
      text(rest, e.node === nobody ? 'attache envoy-config prints what to give it'
        : [e.version && `Envoy ${e.version}`, e.profile, e.last_nack && 'refused its configuration']
          .filter(Boolean).join(' · '));
      node.classList.toggle('bad', Boolean(e.last_nack));
      set(node, { title: e.last_nack || (e.connected_since ? `connected since ${e.connected_since}` : '') });
    },
  };
}

function replica() {
  const name = h('span');
  const rest = h('span', { class: 'dim' });
  const node = h('li', {}, name, rest);
  return {
    node,
    update(r) {
      text(name, `${r.whole ? '●' : '○'} ${r.name}`);
      text(rest, r.whole ? 'replica' : 'replica, not all known yet');
      set(node, { title: `heard ${r.heard_age_s.toFixed(1)} s ago` });
    },
  };
}

function notice({ level, about, detail }) {
  const bad = level === 'failed';
  const words = h('b', { 'data-level': level }, `${bad ? '■' : '▲'} ${about}`);
  return { node: h('li', { class: bad ? 'bad' : '' }, words, detail), update() {} };
}

function tiles() {
  const tile = (name) => {
    const value = h('dd');
    const note = h('dd', { class: 'note' });
    $('tiles').append(h('div', {}, h('dt', {}, name), value, note));
    return (v, words = '') => {
      quantity(value, v);
      text(note, words);
      set(note, { title: words });
    };
  };
  const requests = tile('Requests');
  const errors = tile('Errors');
  const inFlight = tile('In flight');
  const p50 = tile('TTFT p50');
  const p99 = tile('TTFT p99');
  const cached = tile('Cached share');
  const ready = tile('Workers ready');
  return (s, workers) => {
    requests(rate(s.requests_per_s), `${join(count(s.requests_total))} in all`);
    errors(rate(s.errors_per_s), s.errors.length
      ? s.errors.map((e) => `${e.name.replaceAll('_', ' ')} ${join(count(e.total))}`).join(', ')
      : `${join(count(s.errors_total))} in all`);
    inFlight(count(s.in_flight), 'requests');
    p50(seconds(s.ttft_p50_s), 'first token, median');
    p99(seconds(s.ttft_p99_s), '1 in 100 is slower');
    const { available, delivered } = s.cached_share;
    cached(percent(delivered), known(available) ? `of ${join(percent(available))} on offer` : '');
    const n = workers.filter((w) => w.state === 'ready').length, all = workers.filter((w) => w.state !== 'gone').length;
    ready([`${n}`, `of ${all}`], n === all ? '' : `${all - n} not ready`);
  };
}

function charts() {
  const requests = chart('Requests', rate, [
    { name: 'requests', style: 's1', area: true }, { name: 'errors', style: 's4 dash' }]);
  const ttft = chart('Time to first token', seconds, [
    { name: 'p50', style: 's1' }, { name: 'p99', style: 's3 dash' }]);
  const cached = chart('Cached share of prompt tokens', percent, [
    { name: 'available', style: 's3 dots' }, { name: 'captured', style: 's1 dash' }, { name: 'delivered', style: 's2' }], 1);
  $('charts').append(requests.node, ttft.node, cached.node);
  return (s) => {
    const start = Date.parse(s.start);
    requests.update(start, s.step_s, [s.requests, s.errors].map((c) => c.map((v) => v / s.step_s)));
    ttft.update(start, s.step_s, [s.ttft_p50_s, s.ttft_p99_s]);
    cached.update(start, s.step_s, [s.cached_share_available, s.cached_share_captured, s.cached_share_delivered]);
  };
}
