// The filter, its form, and the address that keeps it.

const fields = ['product', 'namespace', 'class', 'state', 'sort'];
const anything = { product: 'All products', namespace: 'All namespaces', class: 'All classes' };

function drawFacets() {
  const all = facets();
  for (const name of ['product', 'namespace', 'class']) {
    const values = [...all[name]].filter(Boolean).sort(natural);
    if (filter[name] && !values.includes(filter[name])) values.push(filter[name]);
    const select = byId(name);
    const options = ['', ...values];
    if (options.length === select.options.length && options.every((value, i) => select.options[i].value === value)) continue;
    select.replaceChildren(...options.map((value) => el('option', { value }, value ? (name === 'product' ? shortProduct(value) : value) : anything[name])));
    select.value = filter[name];
  }
}

// drawForm copies the filter into the form.
function drawForm() {
  byId('query').value = filter.query;
  for (const name of fields) byId(name).value = filter[name];
}

function changeFilter() {
  filter.query = byId('query').value.trim();
  for (const name of fields) filter[name] = byId(name).value;
  const kept = new URLSearchParams(Object.entries(filter).filter(([, value]) => value));
  history.replaceState(null, '', `#${kept}`);
  byId('grid').scrollTop = 0;
  refresh();
  say(byId('found').textContent || `${plural(grid.rows.length, 'node')}`);
}

function readAddress() {
  const kept = new URLSearchParams(location.hash.slice(1));
  for (const name of Object.keys(filter)) filter[name] = kept.get(name) || '';
}

function resetFilter() {
  for (const name of Object.keys(filter)) filter[name] = '';
  drawForm();
  changeFilter();
}

function startFilter() {
  readAddress();
  const form = byId('filters');
  form.addEventListener('input', changeFilter);
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    byId('grid').focus();
  });
  form.addEventListener('reset', (event) => {
    event.preventDefault();
    resetFilter();
    byId('query').focus();
  });
  addEventListener('hashchange', () => {
    readAddress();
    drawForm();
    refresh();
  });
}

function drawSummary(sum) {
  const held = sum.memory - sum.free;
  const part = sum.memory ? (100 * held) / sum.memory : 0;
  const meter = el('span.meter', { 'aria-hidden': 'true' }, el('span'));
  meter.firstChild.style.width = `${part}%`;
  byId('summary').replaceChildren(
    ...[
      ['Nodes', count(sum.nodes)],
      ['GPUs', count(sum.gpus)],
      ['In use', count(sum.used), sum.gpus ? ` ${Math.round((100 * sum.used) / sum.gpus)} %` : ''],
      ['Memory held', memory(held), ` of ${memory(sum.memory)}`, meter],
      ...(sum.known ? [['Utilization', percent(sum.busy / sum.known)]] : []),
      ['Tainted', count(sum.tainted)],
      ['Pending pods', count(pods.items.length)],
    ].map(([name, value, more, extra]) => el(
      `div${(name === 'Tainted' && sum.tainted) || (name === 'Pending pods' && pods.items.length) ? '.notable' : ''}`,
      null,
      el('dt', null, name),
      el('dd', null, el('b', null, value), more && el('span', null, more), extra),
    )),
  );
}
