// The latest decisions: a sentence each, and the arithmetic behind it on demand.

import { $, code, h, hint, keyed, set, text } from './dom.js';
import { clock, cost, count, join, known, plural, seconds } from './format.js';

const reading = 15000; // ms after the last movement of the pointer

export function decisions() {
  const box = $('decisions');
  // The list holds still while somebody reads: a moving pointer, the keyboard in it, or an open decision.
  let moved = -Infinity;
  box.addEventListener('pointermove', () => { moved = performance.now(); });
  box.addEventListener('pointerleave', () => { moved = -Infinity; });
  const held = () =>
    performance.now() - moved < reading || box.querySelector(':focus-visible, details[open]') !== null;
  return ({ decisions: all }) => {
    const still = box.childElementCount > 0 && held();
    $('held').hidden = !still;
    if (!still) keyed(box, all, (d) => d.id, decision);
    hint($('no-decisions'), all.length === 0, 'No request yet. Send one through Envoy, as to any OpenAI server: ',
      code('curl http://ENVOY/v1/chat/completions …'), ' It appears here with the reason for its worker.');
  };
}

const outcomes = { '': ['◌', 'running', 'idle'], ok: ['●', 'ok', 'ok'] };

function decision() {
  const time = h('span', { class: 'dim' }), outcome = h('span', { class: 'word' }), pool = h('span', { class: 'clip' });
  const ttft = h('span', { class: 'right' }), reason = h('p');
  const body = h('div', { class: 'detail' });
  const summary = h('summary', {}, h('div', { class: 'top' }, time, outcome, pool, ttft), reason);
  const node = h('li', {}, h('details', {}, summary, body));
  let current = null;
  // The arithmetic is built when somebody asks for it; while it is open the list holds still.
  node.firstChild.addEventListener('toggle', () => body.replaceChildren(...(node.firstChild.open ? detail(current) : [])));
  return {
    node,
    update(d) {
      current = d;
      const [mark, word, level] = outcomes[d.outcome] ?? ['■', d.outcome.replaceAll('_', ' '), 'failed'];
      text(time, clock(new Date(d.time)));
      text(outcome, `${mark} ${word}`);
      set(outcome, { 'data-level': level });
      text(pool, d.pool);
      text(ttft, known(d.ttft_s) ? `TTFT ${join(seconds(d.ttft_s))}` : '');
      text(reason, d.reason);
    },
  };
}

function detail(d) {
  const facts = h('dl');
  const fact = (name, value) => value && facts.append(h('dt', {}, name), h('dd', {}, value));
  fact('Request', d.request_id);
  fact('Decision', d.id);
  fact('Model', d.model);
  fact('Path', d.path);
  fact('Prompt', `${join(count(d.prompt_tokens, 'tokens'))}${d.rung ? `, ${d.rung}` : ''}`);
  fact('From cache', `${join(count(d.captured_tokens, 'tokens'))} expected, ` +
    (known(d.delivered_cached_tokens) ? `${join(count(d.delivered_cached_tokens))} reported` : 'not reported') +
    (d.available_tokens > d.captured_tokens ? `; another held ${join(count(d.available_tokens))}` : ''));
  fact('TTFT', `${join(seconds(d.ttft_s))}, predicted ${join(seconds(d.predicted_ttft_s))}`);
  fact('In the engine', join(seconds(d.engine_ttft_s)));
  fact('Answered by', d.served && `${d.served}${d.attempts > 1 ? `, attempt ${d.attempts}` : ''}`);
  fact('Then', d.alternatives.join(', '));
  fact('Policy', d.policy && `${d.policy}${d.regret > 0 ? `; the cheapest costs ${join(cost(d.regret, d.candidates[0]?.unit))} less` : ''}`);
  fact('Waited', d.waited_s > 0 && join(seconds(d.waited_s)));
  fact('Left out', d.excluded > 0 && plural(d.excluded, 'worker'));
  fact('Hints', d.hints.map((hint) => hint.replaceAll('_', ' ')).join(', '));

  const highest = Math.max(...d.candidates.map((c) => c.total ?? 0), 1e-9);
  const names = [...new Set(d.candidates.flatMap((c) => c.terms.map((t) => t.name)))];
  const style = (name) => `t${Math.min(names.indexOf(name), 5)}`;
  const rows = d.candidates.map((c) => {
    const stack = h('div', { class: 'stack', 'aria-hidden': 'true' });
    const terms = h('div', { class: 'terms' });
    for (const t of c.terms) {
      if (!known(t.value) || t.value === 0) continue;
      const part = h('i', { class: style(t.name) });
      part.style.width = `${(Math.abs(t.value) / highest) * 100}%`;
      stack.append(part);
      terms.append(h('span', {}, h('span', { class: `swatch ${style(t.name)}`, 'aria-hidden': 'true' }),
        `${t.name.replaceAll('_', ' ')} ${join(cost(t.value, c.unit))}`));
    }
    const notes = [`${join(count(c.cached_tokens, 'tokens'))} held`,
      known(c.in_flight) && `${join(count(c.in_flight))} in flight`, !c.eligible && 'not eligible',
      c.passed && 'passed over'].filter(Boolean).join(' · ');
    return h('div', { class: 'candidate' }, h('span', {}, h('b', {}, c.worker), h('span', { class: 'dim' },
      `${c.worker === d.chosen ? ' chosen' : ''} · ${notes}`)), h('b', {}, join(cost(c.total, c.unit))), stack, terms);
  });
  const more = d.candidates_total - d.candidates.length;
  return [facts, ...rows, ...(more > 0 ? [h('p', { class: 'dim' }, `and ${plural(more, 'more worker')}`)] : [])];
}
