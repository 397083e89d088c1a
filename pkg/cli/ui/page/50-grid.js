// The nodes as rows. The active cell is a node's name and a column: 0 the node itself, then its GPUs.

const grid = { rows: [], active: { node: '', column: 0 }, list: null, columns: 8, cell: 100, width: 800, stacked: false, changed: new Set() };

const lineHeight = 44;
const nameHeight = 26;
const rowPadding = 11;
const nameWidth = 190;

// fit chooses how many GPUs a line has.
function fit() {
  const width = byId('grid').clientWidth - 24;
  const most = Math.max(1, ...grid.rows.map((row) => row.node.gpus.length));
  grid.width = width;
  grid.stacked = width < 620;
  const room = grid.stacked ? width : width - nameWidth;
  const least = grid.stacked ? 72 : 84;
  grid.columns = [8, 4, 2, 1].find((n) => (n <= most || n === 1) && room / n >= least + 6) || 1;
  if (most < 8 && most > grid.columns && room / most >= least + 6) grid.columns = most;
  grid.cell = Math.min(240, Math.floor(room / grid.columns) - 6);
  const style = byId('grid').style;
  style.setProperty('--columns', grid.columns);
  style.setProperty('--cell', `${grid.cell}px`);
  style.setProperty('--name', `${nameWidth}px`);
  byId('grid').classList.toggle('stacked', grid.stacked);
}

const lines = (node) => Math.max(1, Math.ceil(node.gpus.length / grid.columns));
const rowHeight = (row) => lines(row.node) * lineHeight + rowPadding + (grid.stacked ? nameHeight : 0);

function drawRow(row) {
  const { node, gpus } = row;
  const used = node.gpus.filter(inUse).length;
  const problems = node.problems || [];
  const name = el(
    'div.name',
    {
      role: 'rowheader',
      'aria-colindex': 1,
      'aria-label': [node.name, products(node), `${used} of ${plural(node.gpus.length, 'GPU')} in use`, node.cordoned && 'cordoned', ...problems].filter(Boolean).join('; '),
      title: [node.name, ...problems].join('\n'),
    },
    el('strong', null, shorten(node.name, 'name', grid.stacked ? grid.width * 0.45 : nameWidth - 20 - (node.cordoned ? 66 : 0) - (problems.length ? 74 : 0))),
    node.cordoned && el('span.chip', null, 'cordoned'),
    problems.length > 0 && el('span.chip.bad', null, `! ${plural(problems.length, 'problem')}`),
    el('span.about', null, products(node) || 'no GPUs'),
  );
  name.dataset.column = 0;
  const element = el('div.node', { role: 'row' }, name, el('div.cells', { role: 'presentation' }, node.gpus.map((gpu, i) => cell(gpu, grid.cell, i + 1, gpus.has(gpu)))));
  element.dataset.node = node.name;
  if (grid.changed.delete(node.name)) element.classList.add('changed');
  return element;
}

function sameGPUs(a, b) {
  if (a.size !== b.size) return false;
  for (const gpu of a) if (!b.has(gpu)) return false;
  return true;
}

function startGrid() {
  let drawnWidth = 0;
  grid.list = new VirtualList(byId('grid'), {
    height: rowHeight,
    key: (row) => row.node.name,
    draw: drawRow,
    same: (row, drawn) => row.node === drawn.node && sameGPUs(row.gpus, drawn.gpus),
    place: (element, i) => element.setAttribute('aria-rowindex', i + 1),
    drew: () => { markActive(); drawLoads(); },
    resized: () => {
      const width = byId('grid').clientWidth;
      if (width === drawnWidth) return;
      drawnWidth = width;
      fit();
      grid.list.redraw();
    },
  });
  byId('grid').addEventListener('click', (event) => {
    const found = event.target.closest('[data-column]');
    if (!found) return;
    activate(found.closest('[data-node]').dataset.node, Number(found.dataset.column));
    openActive(false);
  });
}

function setRows(rows) {
  grid.rows = rows;
  const before = `${grid.columns} ${grid.cell} ${grid.stacked}`;
  fit();
  if (before === `${grid.columns} ${grid.cell} ${grid.stacked}`) grid.list.set(rows);
  else {
    grid.list.items = rows;
    grid.list.redraw();
  }
  byId('grid').setAttribute('aria-rowcount', rows.length);
  byId('grid').setAttribute('aria-colcount', 1 + Math.max(0, ...rows.map((row) => row.node.gpus.length)));
  if (!rows.length) byId('grid').dataset.empty = model.nodes.size ? 'No GPU matches the filter' : `No GPUs of driver ${model.meta.driver || ''}`;
  else delete byId('grid').dataset.empty;
}

// markActive marks the active cell, if it is drawn.
function markActive() {
  const container = byId('grid');
  const before = byId('active-cell');
  if (before) {
    before.id = '';
    before.removeAttribute('aria-selected');
  }
  const row = container.querySelector(`[data-node="${CSS.escape(grid.active.node)}"]`);
  const element = row && row.querySelector(`[data-column="${grid.active.column}"]`);
  if (!element) {
    container.removeAttribute('aria-activedescendant');
    return;
  }
  element.id = 'active-cell';
  element.setAttribute('aria-selected', 'true');
  container.setAttribute('aria-activedescendant', 'active-cell');
}

const activeIndex = () => grid.rows.findIndex((row) => row.node.name === grid.active.node);

function activate(node, column) {
  grid.active = { node, column };
  const index = activeIndex();
  if (index >= 0) grid.list.show(index);
  else markActive();
}

// move moves the active cell by rows and columns. A node's GPUs on several lines are passed line by line.
function move(down, right) {
  if (!grid.rows.length) return;
  let index = activeIndex();
  if (index < 0) {
    activate(grid.rows[0].node.name, 0);
    return;
  }
  let { column } = grid.active;
  const gpus = () => grid.rows[index].node.gpus.length;
  const line = (c) => Math.floor((c - 1) / grid.columns);
  if (Math.abs(down) === 1 && column > 0) {
    const next = column + down * grid.columns;
    const last = lines(grid.rows[index].node) - 1;
    if (down > 0 && line(column) < last) column = Math.min(gpus(), next);
    else if (down < 0 && line(column) > 0) column = next;
    else if (index + down >= 0 && index + down < grid.rows.length) {
      index += down;
      const within = (column - 1) % grid.columns;
      const first = down > 0 ? 0 : lines(grid.rows[index].node) - 1;
      column = Math.min(gpus(), first * grid.columns + within + 1);
    }
  } else index = Math.min(grid.rows.length - 1, Math.max(0, index + down));
  column = Math.min(gpus(), Math.max(0, column + right));
  activate(grid.rows[index].node.name, column);
}

// gridKey handles a key; it reports whether it did.
function gridKey(event) {
  const end = grid.rows.length;
  const all = event.ctrlKey || event.metaKey;
  const steps = {
    ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1],
    PageDown: [grid.list.page(), 0], PageUp: [-grid.list.page(), 0],
    Home: all ? [-end, -1e9] : [0, -1e9], End: all ? [end, 1e9] : [0, 1e9],
  };
  if (event.key === 'Enter' || event.key === ' ') openActive(true);
  else if (steps[event.key]) move(...steps[event.key]);
  else return false;
  return true;
}

// openActive shows the details of the active cell.
function openActive(focus) {
  const row = grid.rows[activeIndex()];
  if (!row) return;
  const gpu = row.node.gpus[grid.active.column - 1];
  show(gpu ? { kind: 'gpu', node: row.node.name, gpu: gpu.name } : { kind: 'node', node: row.node.name }, focus);
}
