// A GPU as a bar: its memory from left to right.

const pen = document.createElement('canvas').getContext('2d');
const widths = new Map();
let family = '';
const fonts = { label: '550 10.5px', name: '600 13px' };

// textWidth is the width of a text in pixels.
function textWidth(text, font) {
  const key = `${font} ${text}`;
  if (!widths.has(key)) {
    if (widths.size > 50000) widths.clear();
    family ||= getComputedStyle(document.body).fontFamily;
    pen.font = `${fonts[font]} ${family}`;
    widths.set(key, pen.measureText(text).width);
  }
  return widths.get(key);
}

// label is the first text that fits into a width in pixels.
const label = (candidates, width) => candidates.find((text) => textWidth(text, 'label') + (text.length > 1 ? 9 : 4) <= width) || '';

// shorten cuts a name in the middle until it fits: names of nodes and pods differ at both ends.
function shorten(text, font, width) {
  if (textWidth(text, font) <= width) return text;
  let low = 1;
  let high = text.length - 1;
  const cut = (n) => `${text.slice(0, Math.ceil(n / 2))}…${text.slice(text.length - Math.floor(n / 2))}`;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (textWidth(cut(middle), font) <= width) low = middle;
    else high = middle - 1;
  }
  return cut(low);
}

function segment(kind, left, width, text) {
  const element = el(`span.part.${kind}`, null, text);
  element.style.left = `${left}%`;
  element.style.width = `${width}%`;
  return element;
}

const podOf = (use) => `${use.namespace}/${(use.pods && use.pods[0]) || use.claim}`;

// shares returns the segments of shares of a GPU, in percent: by memory if they state it, else equal.
function shares(gpu, part, pixels) {
  const { letter } = kindOf(part);
  const byMemory = part.type === 'mps' && part.uses.every((use) => use.memory > 0);
  const room = [segment(`${part.type}.rest`, 0, 100, '')];
  if (part.uses.length > 12) return [segment(part.type, 0, 100, `${letter} ×${part.uses.length}`)];
  let left = 0;
  for (const use of part.uses) {
    const width = Math.min(100 - left, byMemory ? (100 * use.memory) / gpu.memory : 100 / Math.max(part.uses.length, part.type === 'mps' ? 4 : 1));
    const px = (width * pixels) / 100;
    room.push(segment(part.type, left, width, label([`${letter} ${podOf(use)}`, `${letter} ${(use.pods || [use.claim])[0]}`, letter], px)));
    left += width;
  }
  return room;
}

// bar draws a GPU into a width in pixels.
function bar(gpu, pixels) {
  const element = el('div.bar', { 'aria-hidden': 'true' });
  if (gpu.slices) {
    element.classList.add('sliced');
    element.style.setProperty('--slices', gpu.slices);
  }
  if (isTainted(gpu)) element.classList.add('tainted');
  for (const part of gpu.parts || []) {
    if (part.type === 'perfmon' || part.type === 'monitor') continue;
    const use = part.uses[0];
    if (part.type === 'mig' && part.size && gpu.slices) {
      const width = (100 * part.size) / gpu.slices;
      const px = (width * pixels) / 100;
      const short = (part.profile || '').split('.')[0];
      const texts = [part.profile, short, short.replace(/g.*/, '')];
      if (use) texts.unshift(`${part.profile} ${podOf(use)}`, `${short} ${podOf(use)}`, `${short} ${(use.pods || [use.claim])[0]}`);
      element.append(segment('mig', (100 * part.start) / gpu.slices, width, label(texts, px)));
    } else if (part.type === 'mps' || part.type === 'timeslice') {
      element.append(...shares(gpu, part, pixels));
    } else {
      const { letter } = kindOf(part);
      const texts = use ? [`${letter} ${podOf(use)}`, `${letter} ${(use.pods || [use.claim])[0]}`, letter] : [letter];
      element.append(segment('gpu', 0, 100, label(texts, pixels - 3) || letter));
    }
  }
  return element;
}

// describe is a GPU in one sentence, for screen readers and as a tooltip.
function describe(gpu) {
  const parts = (gpu.parts || []).map((part) => {
    const users = part.uses.map(podOf).join(', ');
    return `${part.profile && part.type === 'mig' ? part.profile : kindOf(part).name} ${users}`;
  });
  const taints = (gpu.taints || []).map((taint) => taint.text);
  return [
    `GPU ${gpu.index ?? ''} ${shortId(gpu)}`.replace(/\s+/g, ' '),
    `${memory(gpu.free)} of ${memory(gpu.memory)} free`,
    ...parts,
    ...(taints.length ? [`tainted: ${taints.join(', ')}`] : []),
  ].join('; ');
}

const shortId = (gpu) => gpu.name.replace(/^gpu-/, '');

// cell draws a GPU in the row of its node.
function cell(gpu, pixels, column, matched) {
  const element = el(
    'div.gpu-cell',
    { role: 'gridcell', 'aria-colindex': column + 1, 'aria-label': describe(gpu), title: describe(gpu) },
    el(
      'div.caption',
      { 'aria-hidden': 'true' },
      el('b', null, gpu.index ?? '·'),
      pixels >= 104 && el('span.id', null, shortId(gpu)),
      (gpu.parts || []).some((part) => part.type === 'perfmon') && el('span.flag', null, 'P'),
      isTainted(gpu) ? el('span.alarm', null, pixels >= 84 ? '! tainted' : '!') : el('span.free', null, gpu.free > 0 ? memory(gpu.free) : 'full'),
    ),
    bar(gpu, pixels - 8),
    el('div.load', { 'aria-hidden': 'true', hidden: true }, el('span')),
  );
  element.dataset.column = column;
  if (gpu.uuid) element.dataset.uuid = gpu.uuid;
  if (!matched) element.classList.add('dim');
  return element;
}

const percent = (ratio) => `${Math.round(100 * ratio)} %`;

// drawLoads draws how busy the GPUs in view are: a line below each bar.
function drawLoads() {
  for (const element of byId('grid').querySelectorAll('[data-uuid]')) {
    const { utilization } = model.loads[element.dataset.uuid] || {};
    const line = element.querySelector('.load');
    line.hidden = utilization === undefined;
    if (utilization !== undefined) line.firstChild.style.width = percent(Math.min(1, utilization)).replace(' ', '');
  }
}

// products is "8 × H100 80GB HBM3" of a node, by number.
function products(node) {
  const numbers = new Map();
  for (const gpu of node.gpus) numbers.set(gpu.product, (numbers.get(gpu.product) || 0) + 1);
  return [...numbers].map(([product, n]) => `${n} × ${shortProduct(product)}`).join(', ');
}
