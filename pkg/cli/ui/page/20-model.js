// The picture, and the part of it that the filter selects.

const model = {
  meta: {},
  nodes: new Map(),
  pods: [],
  // loads are how busy GPUs are, by UUID; problem says why they are unknown.
  loads: {},
  problem: '',
  // offset is the cluster's time less the browser's, in seconds.
  offset: 0,
  live: false,
};

const now = () => (model.live ? Date.now() / 1000 + model.offset : model.meta.time || 0);

// apply takes an event of the server, or the state in the file. It returns the names of nodes that changed.
function apply(update) {
  const changed = new Set();
  if (update.full) model.nodes.clear();
  model.meta = update.meta;
  model.offset = update.meta.time - Date.now() / 1000;
  for (const node of update.nodes) {
    model.nodes.set(node.name, node);
    if (!update.full) changed.add(node.name);
  }
  if (update.pods) model.pods = update.pods;
  if (update.loads) {
    model.loads = update.loads.gpus || {};
    model.problem = update.loads.problem || '';
  }
  return changed;
}

// searchable is the text of a GPU that words of the filter match, by field.
const texts = new WeakMap();
function searchable(node, gpu) {
  const key = gpu || node;
  let fields = texts.get(key);
  if (!fields) {
    const uses = gpu ? (gpu.parts || []).flatMap((part) => part.uses) : [];
    fields = {
      node: node.name,
      product: gpu ? gpu.product : '',
      ns: uses.map((use) => use.namespace).join('\n'),
      class: uses.map((use) => use.class || '').join('\n'),
      taint: gpu ? (gpu.taints || []).map((taint) => taint.text).join('\n') : (node.problems || []).join('\n'),
      other: gpu
        ? [gpu.name, gpu.uuid, gpu.maintenance, ...uses.flatMap((use) => [use.claim, ...(use.pods || [])].map((name) => `${use.namespace}/${name}`))].join('\n')
        : '',
    };
    for (const field of Object.keys(fields)) fields[field] = fields[field].toLowerCase();
    fields.all = Object.values(fields).join('\n');
    texts.set(key, fields);
  }
  return fields;
}

// terms splits the query into [field, word].
function terms(query) {
  return query.toLowerCase().split(/\s+/).filter(Boolean).map((word) => {
    const match = /^(node|product|ns|class|taint):(.*)$/.exec(word);
    return match ? [match[1], match[2]] : ['all', word];
  });
}

const filter = { query: '', product: '', namespace: '', class: '', state: '', sort: '' };
const filtered = () => Boolean(filter.query || filter.product || filter.namespace || filter.class || filter.state);

const usesOf = (gpu) => (gpu.parts || []).flatMap((part) => part.uses);
const inUse = (gpu) => (gpu.parts || []).some((part) => part.type !== 'perfmon' && part.type !== 'monitor');
const isTainted = (gpu) => Boolean(gpu.taints && gpu.taints.length);

// loadOf is how busy a GPU is; undefined if unknown.
const loadOf = (gpu) => (model.loads[gpu.uuid] || {}).utilization;

const states = {
  '': () => true,
  unused: (gpu) => !inUse(gpu),
  room: (gpu) => gpu.free > 0 && !isTainted(gpu),
  used: inUse,
  tainted: isTainted,
  // Allocated, but hardly busy at this moment.
  idle: (gpu) => inUse(gpu) && loadOf(gpu) < 0.05,
};

function matches(node, gpu, words) {
  const fields = searchable(node, gpu);
  if (!words.every(([field, word]) => fields[field].includes(word))) return false;
  if (filter.product && (!gpu || gpu.product !== filter.product)) return false;
  if (filter.namespace && (!gpu || !usesOf(gpu).some((use) => use.namespace === filter.namespace))) return false;
  if (filter.class && (!gpu || !usesOf(gpu).some((use) => use.class === filter.class))) return false;
  return !filter.state || Boolean(gpu && states[filter.state](gpu));
}

// select returns the rows that the filter leaves: a node, and the GPUs of it that match.
function select() {
  const words = terms(filter.query);
  const rows = [];
  for (const node of model.nodes.values()) {
    const gpus = new Set(node.gpus.filter((gpu) => matches(node, gpu, words)));
    if (gpus.size || (!node.gpus.length && matches(node, null, words))) rows.push({ node, gpus });
  }
  const free = (row) => [...row.gpus].reduce((sum, gpu) => sum + (isTainted(gpu) ? 0 : gpu.free), 0);
  const taints = (row) => [...row.gpus].filter(isTainted).length + (row.node.problems ? 1 : 0);
  const busy = (row) => [...row.gpus].reduce((sum, gpu) => sum + (loadOf(gpu) || 0), 0) / Math.max(1, row.gpus.size);
  const by = { free, taints, busy }[filter.sort];
  if (by) for (const row of rows) row.key = by(row);
  rows.sort((a, b) => (by ? b.key - a.key : 0) || natural(a.node.name, b.node.name));
  return rows;
}

// selectPods returns the waiting pods that the filter leaves. Fields that a pod lacks leave it out, except the state of GPUs.
function selectPods() {
  const words = terms(filter.query);
  return model.pods.filter((pod) => {
    const fields = { ns: pod.namespace, class: (pod.classes || []).join('\n') };
    fields.all = `${pod.namespace}/${pod.name}\n${fields.class}`;
    if (!words.every(([field, word]) => (fields[field] || '').toLowerCase().includes(word))) return false;
    if (filter.namespace && pod.namespace !== filter.namespace) return false;
    return !filter.class || (pod.classes || []).includes(filter.class);
  });
}

// totals sums up the GPUs of rows.
function totals(rows) {
  const sum = { nodes: rows.length, gpus: 0, used: 0, tainted: 0, memory: 0, free: 0, busy: 0, known: 0 };
  for (const { gpus } of rows) {
    for (const gpu of gpus) {
      sum.gpus += 1;
      sum.memory += gpu.memory;
      sum.free += gpu.free;
      if (inUse(gpu)) sum.used += 1;
      if (isTainted(gpu)) sum.tainted += 1;
      if (loadOf(gpu) !== undefined) {
        sum.known += 1;
        sum.busy += loadOf(gpu);
      }
    }
  }
  return sum;
}

// facets are the values that can be chosen in the filter.
function facets() {
  const all = { product: new Set(), namespace: new Set(), class: new Set() };
  for (const node of model.nodes.values()) {
    for (const gpu of node.gpus) {
      all.product.add(gpu.product);
      for (const use of usesOf(gpu)) {
        all.namespace.add(use.namespace);
        if (use.class) all.class.add(use.class);
      }
    }
  }
  for (const pod of model.pods) {
    all.namespace.add(pod.namespace);
    for (const name of pod.classes || []) all.class.add(name);
  }
  return all;
}
