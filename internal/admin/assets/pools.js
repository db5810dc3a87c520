// Pools: what each serves, how fast, and where reuse of cached prompts is lost.

import { $, bar, code, h, hint, keyed, quantity, set, text } from './dom.js';
import { factor, known, percent, plural, rate, seconds } from './format.js';

export function pools() {
  return ({ pools: all }) => {
    keyed($('pools'), all, (p) => p.name, pool);
    hint($('no-pools'), all.length === 0,
      'No pool is configured yet. A pool names the models that a group of workers serves: add one under ',
      code('pools:'), ' in the configuration file and check it with ', code('attache check'), '.');
  };
}

function pool() {
  const name = h('h3', { class: 'clip' });
  const ready = h('span', { class: 'right' });
  const about = h('p', { class: 'dim clip' });
  const facts = h('dl', { class: 'facts' });
  const fact = (label) => {
    const value = h('dd');
    facts.append(h('div', {}, h('dt', {}, label), value));
    return (v) => quantity(value, v);
  };
  const requests = fact('Requests'), p50 = fact('TTFT p50'), p99 = fact('TTFT p99'), speed = fact('Speed factor k');
  const reuse = h('div', { class: 'reuse' });
  const share = (label, kind, title) => {
    const b = bar(kind);
    const value = h('b');
    reuse.append(h('span', { class: 'dim', title }, label), b.node, value);
    return (v) => { b.fill(v); quantity(value, percent(v)); };
  };
  const available = share('available', 's3', 'Prompt tokens that the best eligible worker held');
  const captured = share('captured', '', 'Prompt tokens that the chosen worker held');
  const delivered = share('delivered', 's2', 'Prompt tokens that the engine says it took from its cache');
  const losses = h('p', { class: 'dim' });
  reuse.append(losses);
  const node = h('article', { class: 'card' }, h('div', { class: 'top' }, name, ready), about, facts, reuse);
  return {
    node,
    update(p) {
      text(name, p.name);
      text(ready, `${p.workers_ready} of ${plural(p.workers_total, 'worker')} ready`);
      set(ready, { 'data-level': p.workers_total === 0 || p.workers_ready === 0 ? 'failed'
        : p.workers_ready < p.workers_total ? 'degraded' : 'ok' });
      const line = [p.models.length ? p.models.join(', ') : 'every model', `${p.policy} policy`, tokens(p)].join(' · ');
      text(about, line);
      set(about, { title: line });
      requests(rate(p.requests_per_s));
      p50(seconds(p.ttft_p50_s));
      p99(seconds(p.ttft_p99_s));
      speed(factor(p.speed_factor));
      available(p.cached_share.available);
      captured(p.cached_share.captured);
      delivered(p.cached_share.delivered);
      text(losses, lost(p.cached_share));
    },
  };
}

// tokens says how prompts are cut into blocks.
function tokens({ rung, rung_reason: why }) {
  if (rung === 'exact') return 'exact tokens';
  const because = { no_model: '', loading: ' while the model is read', count_mismatch: ': the engines make other tokens' }[why] ?? '';
  return (rung === 'engine' ? 'tokens from the engines' : 'tokens by length') + because;
}

// lost says where reuse stays behind what was on offer, in percentage points.
function lost({ available: a, captured: c, delivered: d }) {
  const points = (from, to) => Math.round(from * 100) - Math.round(to * 100);
  const parts = [];
  if (known(a) && known(c) && points(a, c) > 0) parts.push(`${plural(points(a, c), 'point')} given up for balance`);
  if (known(c) && known(d) && points(c, d) > 0) parts.push(`${plural(points(c, d), 'point')} lost in the engine`);
  if (!known(a)) return 'no prompt was routed in the last minute';
  return parts.length ? parts.join(', ') : 'nothing on offer is lost';
}
