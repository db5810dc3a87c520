// The dashboard: one event stream in, the page's sections out.

import { $, set, text } from './dom.js';
import { clock } from './format.js';
import { overview } from './overview.js';
import { pools } from './pools.js';
import { workers } from './workers.js';
import { decisions } from './decisions.js';

const theme = new URLSearchParams(location.search).get('theme');
if (theme === 'dark' || theme === 'light') document.documentElement.dataset.theme = theme;

const silence = 6000; // ms without a frame until the connection counts as lost
const backoff = { first: 1000, most: 10000 };

const sections = [overview(), pools(), workers(), decisions()];
let stream = null;
let version = null; // of the server that sent this page
let opened = 0; // when the stream was opened and when its last frame came, by this computer's clock
let seen = 0;
let shown = null; // the server's time of that frame
let wait = backoff.first;
let retry = 0;

function show(state) {
  version ??= state.status.version;
  if (state.status.version !== version) location.reload(); // another binary has another page
  seen = Date.now();
  shown = new Date(state.at);
  for (const update of sections) update(state);
  text($('asof'), `as of ${clock(shown)}`);
}

function connect() {
  clearTimeout(retry);
  stream?.close();
  opened = Date.now();
  stream = new EventSource('api/v1/stream');
  stream.addEventListener('state', (e) => {
    show(JSON.parse(e.data));
    wait = backoff.first;
    banner('');
  });
  stream.addEventListener('problem', (e) => {
    seen = Date.now();
    banner(`attache could not read its own state: ${e.data}`);
  });
  stream.onerror = () => lost('attache does not answer, or has as many viewers as it allows.');
}

setInterval(() => {
  if (stream?.readyState === EventSource.OPEN && Date.now() - Math.max(seen, opened) > silence) lost('attache is silent.');
}, 1000);

function lost(why) {
  stream.close();
  banner(`Connection lost. ${why}${shown ? ` These figures are from ${clock(shown)}.` : ''} Trying again …`);
  clearTimeout(retry);
  retry = setTimeout(connect, wait);
  wait = Math.min(wait * 2, backoff.most);
}

function banner(message) {
  document.documentElement.classList.toggle('stale', message !== '');
  $('lost').hidden = message === '';
  text($('lost'), message);
  if (message === '') return;
  document.title = 'no connection · attache';
  set($('pill'), { 'data-level': 'idle' });
  text($('pill'), 'no connection');
}

// A page in the background gives its place to another viewer.
document.addEventListener('visibilitychange', () => {
  if (document.hidden) {
    clearTimeout(retry);
    stream?.close();
  } else connect();
});
connect();
