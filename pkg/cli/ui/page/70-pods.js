// Waiting pods and their explanations.

const pods = { list: null, items: [], active: '', explained: new Map(), loading: new Set() };

// reasonOf is the sentence of an explanation without the pod, which the page shows before it.
const reasonOf = (sentence) => sentence.replace(/^Pod [^:]*: ./, (start) => start.slice(-1).toUpperCase());
const podKey = (pod) => `${pod.namespace}/${pod.name}`;
const sentenceOf = (pod) => {
  const known = pods.explained.get(podKey(pod));
  return (known && known.explanation ? known.explanation : pod.explanation || {}).sentence;
};
// A saved page has no third line without an explanation.
const podHeight = (pod) => (model.live || sentenceOf(pod) ? 58 : 43);

function drawPod(pod) {
  const sentence = sentenceOf(pod);
  const element = el(
    'div.pending',
    { role: 'option' },
    el('div.line', null, el('strong', null, podKey(pod)), el('span.age', null, pod.created ? age(now() - pod.created) : '')),
    el('div.about', { title: sentence || '' }, (pod.requests || []).join(', ') || 'no claim yet'),
    el('div.about', null, sentence ? reasonOf(sentence) : model.live ? 'Why does it wait?' : ''),
  );
  element.dataset.pod = podKey(pod);
  return element;
}

function startPods() {
  pods.list = new VirtualList(byId('pods'), {
    height: podHeight,
    key: podKey,
    draw: drawPod,
    same: (pod, drawn) => pod === drawn,
    place: (element, i) => {
      element.setAttribute('aria-posinset', i + 1);
      element.setAttribute('aria-setsize', pods.items.length);
    },
    drew: markPod,
  });
  byId('pods').addEventListener('click', (event) => {
    const found = event.target.closest('[data-pod]');
    if (!found) return;
    pods.active = found.dataset.pod;
    markPod();
    openPod(false);
  });
}

function setPods(items) {
  pods.items = items;
  pods.list.set(items);
  byId('pending-count').textContent = `(${count(items.length)})`;
  byId('pending-title').textContent = `Pending pods (${count(items.length)})`;
  if (items.length) delete byId('pods').dataset.empty;
  else byId('pods').dataset.empty = model.pods.length ? 'No pending pod matches the filter' : 'No pod waits for a GPU';
}

function markPod() {
  const container = byId('pods');
  const before = byId('active-pod');
  if (before) {
    before.id = '';
    before.removeAttribute('aria-selected');
  }
  const element = container.querySelector(`[data-pod="${CSS.escape(pods.active)}"]`);
  if (!element) {
    container.removeAttribute('aria-activedescendant');
    return;
  }
  element.id = 'active-pod';
  element.setAttribute('aria-selected', 'true');
  container.setAttribute('aria-activedescendant', 'active-pod');
}

function podsKey(event) {
  const end = pods.items.length;
  const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: pods.list.page(), PageUp: -pods.list.page(), Home: -end, End: end };
  if (event.key === 'Enter' || event.key === ' ') {
    openPod(true);
    return true;
  }
  if (!(event.key in steps)) return false;
  if (!end) return true;
  const at = pods.items.findIndex((pod) => podKey(pod) === pods.active);
  const next = at < 0 ? 0 : Math.min(end - 1, Math.max(0, at + steps[event.key]));
  pods.active = podKey(pods.items[next]);
  pods.list.show(next);
  return true;
}

function openPod(focus) {
  const pod = pods.items.find((p) => podKey(p) === pods.active);
  if (!pod) return;
  show({ kind: 'pod', namespace: pod.namespace, name: pod.name }, focus);
  load(pod);
}

// load requests the explanation of a pod.
async function load(pod) {
  const key = podKey(pod);
  if (!model.live || pods.loading.has(key)) return;
  pods.loading.add(key);
  drawDetails();
  const result = { time: now() };
  try {
    const response = await fetch(`/explain?pod=${encodeURIComponent(key)}`);
    if (response.ok) result.explanation = await response.json();
    else result.problem = (await response.text()).trim();
  } catch {
    result.problem = 'kubectl prism ui does not answer: start it again';
  }
  pods.loading.delete(key);
  pods.explained.set(key, result);
  drawDetails();
  pods.list.redraw();
  if (result.explanation) say(result.explanation.sentence);
}

function podDetails(target) {
  const key = podKey(target);
  const pod = model.pods.find((p) => podKey(p) === key);
  const known = pods.explained.get(key) || (pod && pod.explanation && { explanation: pod.explanation });
  const parts = [
    el('h2', { id: 'details-title' }, target.name),
    el('p.where', null, `namespace ${target.namespace}`, pod && pod.created ? `, Pending for ${age(now() - pod.created)}` : ''),
  ];
  if (!pod) parts.push(el('p.note', null, 'It does not wait any more.'));
  else if (pod.requests) parts.push(el('p.requests', null, pod.requests.join(', ')));
  if (pods.loading.has(key)) parts.push(el('p.quiet', null, 'The scheduler’s allocator is asked node by node …'));
  else if (known && known.problem) parts.push(el('p.note.bad', null, known.problem));
  if (known && known.explanation) parts.push(...explanationParts(known.explanation));
  if (model.live && pod && known && !pods.loading.has(key)) {
    parts.push(el('p.quiet', null, known.time ? `Explained ${age(now() - known.time)} ago. ` : '', action('Explain again', () => load(pod))));
  }
  parts.push(command(`kubectl prism explain pod ${target.name} -n ${target.namespace}`));
  return parts;
}

function explanationParts(e) {
  const parts = [el(`p.sentence${e.fits ? '.fits' : ''}`, null, reasonOf(e.sentence))];
  if (e.changes) parts.push(el('h3', null, 'To run it'), el('ol.changes', null, e.changes.map((change) => el('li', null, change.text))));
  if (e.nearest) parts.push(...nearestParts(e.nearest));
  if (e.groups && e.groups.length) {
    parts.push(el('h3', null, 'Causes'), table(['Nodes', 'Cause', 'Detail'], e.groups.map((group) => el('tr', null,
      el('td.number', null, group.nodes.length === 1 ? action('1', () => jump(group.nodes[0])) : count(group.nodes.length)),
      el('td.cause', { title: group.nodes.slice(0, 20).join(', ') }, group.cause),
      el('td', null, group.detail || '', group.nodes.length <= 3 && el('div.class', null, group.nodes.join(', '))))), 'Causes'));
  }
  for (const note of e.notes || []) parts.push(el('p.note', null, note));
  return parts;
}

function nearestParts(n) {
  const range = n.size > 1 ? `slices ${n.start}–${n.start + n.size - 1}` : `slice ${n.start}`;
  const place = n.size ? `, memory ${range}` : '';
  return [
    el('h3', null, n.alike > 1 ? `Nearest, any 1 of ${count(n.alike)} alike` : 'Nearest'),
    el('p', null, action(n.gpu ? `${n.node}, GPU ${n.gpu.replace(/^gpu-/, '')}` : n.node, () => jump(n.node, n.gpu)), place, n.holders ? ', blocked by' : ''),
    el('ul.holders', null, (n.holders || []).map((h) => el('li', null, h.hidden ? 'claims that you cannot list' : [
      el('span.strong', null, `${h.namespace}/${(h.pods && h.pods.join(', ')) || h.claim}`),
      ` ${h.devices || ''}`, el('div.class', null, [`claim ${h.claim}`, h.owner, h.created && age(now() - h.created), h.terminating && 'terminating'].filter(Boolean).join(', ')),
    ]))),
  ];
}

// jump shows a node or a GPU, even if the filter hides it.
function jump(node, gpu) {
  if (!model.nodes.has(node)) return;
  if (!grid.rows.some((row) => row.node.name === node)) resetFilter();
  show(gpu ? { kind: 'gpu', node, gpu } : { kind: 'node', node }, true);
}
