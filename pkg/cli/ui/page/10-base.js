// All text from the cluster becomes text nodes, never markup.

const byId = (id) => document.getElementById(id);

// el creates an element: el('p.note', {title: 'x'}, child, ...). Children are nodes, texts, or missing.
function el(selector, properties, ...children) {
  const [tag, ...classes] = selector.split('.');
  const element = document.createElement(tag);
  if (classes.length) element.className = classes.join(' ');
  for (const [name, value] of Object.entries(properties || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name in element && !name.includes('-')) element[name] = value;
    else element.setAttribute(name, value);
  }
  for (const child of children.flat()) {
    if (child !== undefined && child !== null && child !== false && child !== '') element.append(child);
  }
  return element;
}

const GiB = 2 ** 30;

// count formats a number with separators.
const count = (n) => n.toLocaleString('en-US');

// memory formats bytes: "512 MiB", "9.8 GiB", "80 GiB", "1.6 TiB".
function memory(bytes) {
  if (bytes >= 1024 * GiB) return `${(bytes / (1024 * GiB)).toFixed(1)} TiB`;
  if (bytes >= 10 * GiB) return `${Math.floor(bytes / GiB)} GiB`;
  if (bytes >= GiB) return `${(Math.floor((10 * bytes) / GiB) / 10).toFixed(1)} GiB`;
  return `${Math.floor(bytes / 2 ** 20)} MiB`;
}

// age formats seconds as kubectl does: the two largest units of short times, one of long times.
function age(seconds) {
  const s = Math.max(0, Math.floor(seconds));
  if (s < 120) return `${s}s`;
  if (s < 600) return `${Math.floor(s / 60)}m${s % 60 ? `${s % 60}s` : ''}`;
  if (s < 3 * 3600) return `${Math.floor(s / 60)}m`;
  if (s < 8 * 3600) return `${Math.floor(s / 3600)}h${Math.floor((s % 3600) / 60) ? `${Math.floor((s % 3600) / 60)}m` : ''}`;
  if (s < 48 * 3600) return `${Math.floor(s / 3600)}h`;
  return `${count(Math.floor(s / 86400))}d`;
}

// plural is "1 node", "2 nodes".
const plural = (n, one) => `${count(n)} ${one}${n === 1 ? '' : 's'}`;

// natural compares names with numbers by their value: gpu-2 is before gpu-10.
const natural = new Intl.Collator('en', { numeric: true }).compare;

const kinds = {
  gpu: { letter: 'W', name: 'whole' },
  mig: { letter: '', name: 'MIG device' },
  mps: { letter: 'M', name: 'MPS share' },
  timeslice: { letter: 'T', name: 'time-sliced share' },
  perfmon: { letter: 'P', name: 'GPU counters' },
  monitor: { letter: '', name: 'monitor' },
};
const kindOf = (part) => kinds[part.type] || { letter: '', name: part.type };

// shortProduct is the product without the vendor.
const shortProduct = (product) => (product || 'unknown product').replace(/^NVIDIA /, '');

// say writes a sentence to the live region.
function say(text) {
  byId('news').textContent = text;
}
