// How figures are written: always with a unit, a dash when unknown. Each function returns [number, unit].

const grouped = new Intl.NumberFormat('en-US');
const rough = new Intl.NumberFormat('en-US', { notation: 'compact', maximumFractionDigits: 1 });
export const unknown = '–';

export const known = (v) => typeof v === 'number' && Number.isFinite(v);
const fixed = (v, large) => (v >= 100 ? grouped.format(Math.round(v)) : v.toFixed(v >= 10 ? Math.min(1, large) : large));

const figure = (v, number, unit) => (known(v) ? [number(v), unit] : [unknown, '']);
export const count = (v, unit = '') => figure(v, grouped.format, unit);
export const compact = (v, unit = '') => figure(v, rough.format, unit);
export const rate = (v) => figure(v, () => fixed(v, v === 0 ? 0 : 2), '/s');
export const percent = (v) => figure(v, () => String(Math.round(v * 100)), '%');
export const factor = (v) => figure(v, () => v.toFixed(2), '×');
export function seconds(v) {
  if (v >= 0.9995) return [fixed(v, 2), 's'];
  return figure(v, () => (v * 1000).toFixed(v < 0.00995 && v > 0 ? 1 : 0), 'ms');
}
export const cost = (v, unit) => (unit === 's' ? seconds(v) : figure(v, () => v.toFixed(Math.abs(v) >= 10 ? 1 : 2), unit));

export const join = ([number, unit]) => (unit ? `${number}\u00a0${unit}` : number);

export function span(s) {
  if (!known(s)) return unknown;
  if (s < 60) return `${Math.max(0, Math.floor(s))} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}
export const clock = (date) => date.toLocaleTimeString('en-GB');
// since is the time from an instant to now (both as the server writes them), roughly; the zero instant is unknown.
export function since(instant, now) {
  const then = Date.parse(instant);
  return then > 0 ? span((Date.parse(now) - then) / 1000).split(' ', 2).join(' ') : unknown;
}
export const plural = (n, one, many = `${one}s`) => `${grouped.format(n)} ${n === 1 ? one : many}`;
