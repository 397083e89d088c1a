// The start of the page: data from the file, or events of the server.

// refresh draws everything from the picture and the filter.
function refresh() {
  drawFacets();
  const rows = select();
  setRows(rows);
  setPods(selectPods());
  drawSummary(totals(rows));
  const on = filtered();
  byId('clear').hidden = !on && !filter.sort;
  byId('found').textContent = on ? `${count(rows.length)} of ${plural(model.nodes.size, 'node')}` : '';
  byId('legend-load').hidden = !Object.keys(model.loads).length;
  drawDetails();
}

function drawMeta() {
  const { meta } = model;
  document.title = meta.source ? `GPUs · ${meta.source}` : 'GPUs';
  byId('source').textContent = [meta.source, meta.namespace && `namespace ${meta.namespace}`].filter(Boolean).join(' · ');
  const missing = byId('missing');
  missing.hidden = !(meta.missing && meta.missing.length);
  missing.replaceChildren(...(meta.missing || []).map((text) => el('li', null, text)));
}

const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString('en-GB');
const day = (seconds) => new Date(seconds * 1000).toISOString().replace('T', ' ').slice(0, 16);

function drawStatus(state) {
  const status = byId('status');
  const text = {
    live: 'Live',
    waiting: 'Reading the cluster …',
    lost: `Not connected; the picture is of ${clock(model.meta.time || 0)}`,
    saved: `${day(model.meta.time || 0)} UTC`,
  }[state];
  status.dataset.state = state;
  if (status.textContent !== text) status.textContent = text;
}

// view chooses what a narrow window shows, and which of its two buttons is pressed.
function view(name, pressed = name) {
  document.body.dataset.view = name;
  for (const button of document.querySelectorAll('#views button')) button.setAttribute('aria-pressed', String(button.dataset.view === pressed));
}

function received(update) {
  const waiting = new Set(model.pods.map(podKey));
  const changed = apply(update);
  grid.changed = changed;
  for (const key of pods.explained.keys()) if (!model.pods.some((pod) => podKey(pod) === key)) pods.explained.delete(key);
  drawMeta();
  refresh();
  if (update.full) return;
  const more = model.pods.filter((pod) => !waiting.has(podKey(pod)));
  if (more.length === 1) say(`Pod ${podKey(more[0])} is pending`);
  else if (more.length) say(`${more.length} more pods are pending`);
}

function connect() {
  model.live = true;
  drawStatus('waiting');
  const events = new EventSource('/events');
  events.onmessage = (event) => {
    received(JSON.parse(event.data));
    drawStatus('live');
  };
  events.onerror = () => {
    if (model.meta.time) drawStatus('lost');
    // A browser gives up after an answer that is no stream.
    if (events.readyState === EventSource.CLOSED) setTimeout(connect, 5000);
  };
}

function onKey(event) {
  if (event.defaultPrevented || byId('help').open) return;
  const { target } = event;
  if (event.key === 'Escape') {
    if (target === byId('query')) {
      if (filtered()) resetFilter();
      else byId('grid').focus();
    } else if (side.shown) close();
    else byId('grid').focus();
    event.preventDefault();
    return;
  }
  if (target.matches('input, select, textarea')) {
    if (target === byId('query') && event.key === 'ArrowDown') {
      byId('grid').focus();
      if (activeIndex() < 0) move(0, 0);
      event.preventDefault();
    }
    return;
  }
  const handled = (target === byId('grid') && gridKey(event)) || (target === byId('pods') && podsKey(event));
  if (!handled && (event.ctrlKey || event.metaKey || event.altKey)) return;
  const global = {
    '/': () => byId('query').select(),
    '?': () => byId('help').showModal(),
    n: () => { view('nodes'); byId('grid').focus(); },
    p: () => { if (side.shown) close(); view('side'); byId('pods').focus(); },
  };
  if (handled) event.preventDefault();
  else if (global[event.key]) {
    event.preventDefault();
    global[event.key]();
  } else if (target === document.body && ['ArrowDown', 'ArrowUp', 'ArrowLeft', 'ArrowRight', 'Enter'].includes(event.key)) {
    const first = activeIndex() < 0;
    byId('grid').focus();
    if (!first) gridKey(event);
    event.preventDefault();
  }
}

const printed = { nodes: 500, pods: 500 };

// preparePrint draws all rows, and says which are left out.
function preparePrint() {
  const beyond = (n, limit, one) => (n > limit ? `${plural(n - limit, one)} more ${n - limit === 1 ? 'is' : 'are'} left out: use the filter.` : '');
  byId('left-out').textContent = beyond(grid.rows.length, printed.nodes, 'node');
  byId('pods-left-out').textContent = beyond(pods.items.length, printed.pods, 'pod');
  grid.list.drawAll(printed.nodes);
  pods.list.drawAll(printed.pods);
}

function endPrint() {
  grid.list.drawAll(false);
  pods.list.drawAll(false);
}

function start() {
  startGrid();
  startPods();
  startFilter();
  view('nodes');
  document.addEventListener('keydown', onKey);
  byId('grid').addEventListener('focus', () => { if (activeIndex() < 0) move(0, 0); });
  byId('pods').addEventListener('focus', () => { if (!pods.active && pods.items.length) { pods.active = podKey(pods.items[0]); markPod(); } });
  byId('show-help').addEventListener('click', () => byId('help').showModal());
  for (const button of document.querySelectorAll('#views button')) {
    button.addEventListener('click', () => {
      if (button.dataset.view === 'side' && side.shown) close();
      view(button.dataset.view);
    });
  }
  addEventListener('beforeprint', preparePrint);
  addEventListener('afterprint', endPrint);
  const data = byId('state-data');
  if (data) {
    received({ full: true, ...JSON.parse(data.textContent) });
    drawStatus('saved');
  } else connect();
  drawForm();
  setInterval(() => { if (model.live) drawDetails(); }, 10000);
}

start();
