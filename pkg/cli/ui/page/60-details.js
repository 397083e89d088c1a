// The side panel: the waiting pods, or the details of a node, a GPU or a pod.

const side = { shown: null, from: null };

const fact = (name, ...value) => [el('dt', null, name), el('dd', null, ...value)];

// action is a button inside a sentence.
function action(text, run) {
  const button = el('button.link', { type: 'button' }, text);
  button.addEventListener('click', run);
  return button;
}

// command shows a command of the terminal.
const command = (text) => el('p.command', null, el('code', { tabIndex: 0 }, text));

function table(headings, rows, title) {
  return el(
    'div.scroll',
    null,
    el('table', { 'aria-label': title }, el('thead', null, el('tr', null, headings.map((h) => el('th', { scope: 'col' }, h)))), el('tbody', null, rows)),
  );
}

// claimRows lists the claims of a GPU's devices.
function claimRows(gpu) {
  const rows = [];
  for (const part of gpu.parts || []) {
    for (const use of part.uses) {
      const size = use.memory || part.memory;
      rows.push(
        el(
          'tr',
          null,
          el('td.device', null, el(`i.swatch.${kinds[part.type] ? part.type : 'gpu'}`, { 'aria-hidden': 'true' }), part.type === 'mig' ? part.profile : kindOf(part).name,
            part.size > 0 && el('div.class', null, part.size > 1 ? `at ${part.start}–${part.start + part.size - 1}` : `at ${part.start}`)),
          el('td', null, el('span.strong', null, `${use.namespace}/${use.claim}`), (use.pods || []).map((pod) => el('div.pod', null, `pod ${pod}`)), use.class && el('div.class', null, use.class)),
          el('td.number', null, size ? memory(size) : '–'),
          el('td.number', null, use.created ? age(now() - use.created) : '–'),
        ),
      );
    }
  }
  return rows;
}

function taintList(gpu) {
  if (!isTainted(gpu)) return null;
  return el(
    'ul.taints',
    { 'aria-label': 'Taints' },
    gpu.taints.map((taint) => el('li', null, el('span.chip.bad', null, `! ${taint.text}`), taint.devices < taint.of && ` ${taint.devices} of ${taint.of} devices`)),
  );
}

// scale numbers the memory slices below a bar.
function scale(gpu) {
  if (!gpu.slices) return null;
  const element = el('div.scale', { 'aria-hidden': 'true' }, Array.from({ length: gpu.slices }, (_, i) => el('span', null, i)));
  element.style.setProperty('--slices', gpu.slices);
  return element;
}

// loadFacts say how busy a GPU is, or why that is unknown.
function loadFacts(gpu) {
  const load = model.loads[gpu.uuid];
  if (!load) return model.problem ? fact('Utilization', el('span.quiet', null, `unknown: ${model.problem}`)) : [];
  return fact('Utilization', [
    load.utilization !== undefined && percent(load.utilization), load.memory && `${memory(load.memory)} in use`, load.power && `${Math.round(load.power)} W`,
  ].filter(Boolean).join(', '));
}

function gpuDetails(node, gpu) {
  const devices = Object.entries(gpu.devices || {}).map(([type, n]) => `${count(n)} ${type}`).join(', ');
  const profiles = Object.keys(gpu.profiles || {}).sort(natural).join(', ');
  const rows = claimRows(gpu);
  const large = bar(gpu, Math.min(420, byId('side').clientWidth || 360) - 34);
  large.classList.add('large');
  return [
    el('h2', { id: 'details-title' }, `GPU ${shortId(gpu)}`),
    el('p.where', null, gpu.index !== undefined && `index ${gpu.index} of `, action(node.name, () => show({ kind: 'node', node: node.name }, true))),
    large,
    scale(gpu),
    taintList(gpu),
    gpu.maintenance && el('p.note', null, `Maintenance: ${gpu.maintenance}`),
    el('dl.facts', null,
      fact('Product', shortProduct(gpu.product)),
      fact('Memory', `${memory(gpu.free)} free of ${memory(gpu.memory)}`),
      loadFacts(gpu),
      gpu.driverVersion && fact('Driver', gpu.driverVersion),
      gpu.uuid && fact('UUID', el('code', null, gpu.uuid)),
      devices && fact('Devices', devices),
      profiles && fact('Profiles', profiles)),
    el('h3', null, 'Claims'),
    rows.length ? table(['Device', 'Claim', 'Memory', 'Age'], rows, 'Claims') : el('p.quiet', null, 'No claim uses this GPU.'),
  ];
}

function nodeDetails(node) {
  const sum = totals([{ gpus: new Set(node.gpus) }]);
  return [
    el('h2', { id: 'details-title' }, node.name),
    el('p.where', null, products(node) || 'no GPUs'),
    node.cordoned && el('p.note', null, 'The node is cordoned: the scheduler places no pods on it.'),
    (node.problems || []).map((problem) => el('p.note.bad', null, `! ${problem}`)),
    el('dl.facts', null,
      fact('In use', `${sum.used} of ${plural(sum.gpus, 'GPU')}`),
      fact('Memory', `${memory(sum.free)} free of ${memory(sum.memory)}`),
      sum.known > 0 && fact('Utilization', percent(sum.busy / sum.known)),
      sum.tainted > 0 && fact('Tainted', plural(sum.tainted, 'GPU'))),
    node.gpus.map((gpu) => {
      const large = bar(gpu, Math.min(420, byId('side').clientWidth || 360) - 34);
      return el('div.of-node', null,
        el('div.caption', null, el('b', null, gpu.index ?? '·'), action(shortId(gpu), () => show({ kind: 'gpu', node: node.name, gpu: gpu.name }, true)),
          isTainted(gpu) && el('span.alarm', null, '! tainted'), el('span.free', null, `${memory(gpu.free)} free`)),
        large);
    }),
    command(`kubectl prism map ${node.name}`),
  ];
}

// content returns the details of a target; null if it is gone.
function content(target) {
  if (target.kind === 'pod') return podDetails(target);
  const node = model.nodes.get(target.node);
  if (!node) return null;
  if (target.kind === 'node') return nodeDetails(node);
  const gpu = node.gpus.find((g) => g.name === target.gpu);
  return gpu ? gpuDetails(node, gpu) : null;
}

// show opens the details of a target.
function show(target, focus) {
  if (!side.shown) side.from = document.activeElement;
  side.shown = target;
  if (target.kind !== 'pod') activate(target.node, target.gpu ? 1 + model.nodes.get(target.node).gpus.findIndex((g) => g.name === target.gpu) : 0);
  drawDetails();
  byId('details').scrollTop = 0;
  view('side', target.kind === 'pod' ? 'side' : 'nodes');
  if (focus) byId('details').focus();
}

// close returns to the waiting pods.
function close() {
  const details = byId('details');
  const inside = details.contains(document.activeElement) || document.activeElement === document.body;
  const target = side.shown;
  side.shown = null;
  drawDetails();
  if (target && target.kind === 'pod') view('side');
  else view('nodes');
  if (inside) (target && target.kind === 'pod' ? byId('pods') : byId('grid')).focus();
}

// drawDetails draws what the panel shows. It leaves the text alone if nothing changed, so that selections stay.
function drawDetails() {
  const details = byId('details');
  byId('pending').hidden = Boolean(side.shown);
  details.hidden = !side.shown;
  if (!side.shown) {
    details.replaceChildren();
    return;
  }
  const back = el('button.back', { type: 'button' }, side.shown.kind === 'pod' ? '‹ Pending pods' : '‹ Close');
  back.addEventListener('click', close);
  const parts = content(side.shown) || [el('h2', { id: 'details-title' }, 'Gone'), el('p.quiet', null, 'It is not in the cluster any more.')];
  const next = el('div', null, back, parts);
  if (details.firstChild && next.isEqualNode(details.firstChild)) return;
  const focused = details.contains(document.activeElement) && document.activeElement !== details;
  const { scrollTop } = details;
  details.replaceChildren(next);
  details.scrollTop = scrollTop;
  if (focused) details.focus();
}
