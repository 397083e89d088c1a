// A list that draws the rows in view, whatever their number. The list has the focus; the active row or cell is marked for screen readers.

class VirtualList {
  // options: height(item) in pixels; key(item); draw(item, index) an element; same(item, drawn) whether an element is up to date.
  constructor(container, options) {
    this.container = container;
    this.options = options;
    this.body = el('div.rows', { role: 'presentation' });
    this.items = [];
    this.offsets = [0];
    this.drawn = new Map();
    this.all = false;
    container.append(this.body);
    container.addEventListener('scroll', () => this.draw(), { passive: true });
    new ResizeObserver(() => {
      if (options.resized) options.resized();
      this.draw();
    }).observe(container);
  }

  set(items) {
    this.items = items;
    this.measure();
    this.draw();
  }

  // measure adds up the heights of rows.
  measure() {
    this.offsets = [0];
    for (const item of this.items) this.offsets.push(this.offsets[this.offsets.length - 1] + this.options.height(item));
  }

  // redraw draws the rows in view again, after a change of their look.
  redraw() {
    this.drawn.clear();
    this.body.replaceChildren();
    this.measure();
    this.draw();
  }

  // at returns the index of the row at a height.
  at(y) {
    let low = 0;
    let high = this.items.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.offsets[middle] <= y) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  draw() {
    const height = this.offsets[this.items.length];
    this.body.style.height = this.all ? '' : `${height}px`;
    const margin = 240;
    const top = this.container.scrollTop;
    let first = this.items.length ? this.at(Math.max(0, top - margin)) : 0;
    let last = this.items.length ? this.at(top + this.container.clientHeight + margin) : -1;
    if (this.all) {
      first = 0;
      last = Math.min(this.items.length, this.all) - 1;
    }
    const kept = new Map();
    for (let i = first; i <= last; i += 1) {
      const item = this.items[i];
      const key = this.options.key(item);
      let row = this.drawn.get(key);
      if (!row || !this.options.same(item, row.item)) {
        if (row) row.element.remove();
        row = { element: this.options.draw(item, i) };
      }
      row.item = item;
      row.element.style.top = this.all ? '' : `${this.offsets[i]}px`;
      row.element.style.height = `${this.offsets[i + 1] - this.offsets[i]}px`;
      this.options.place(row.element, i);
      kept.set(key, row);
    }
    for (const [key, row] of this.drawn) if (!kept.has(key)) row.element.remove();
    this.drawn = kept;
    let cursor = this.body.firstChild;
    for (const { element } of kept.values()) {
      if (element === cursor) cursor = cursor.nextSibling;
      else this.body.insertBefore(element, cursor);
    }
    if (this.options.drew) this.options.drew();
  }

  // show scrolls until a row is in view.
  show(index) {
    const top = this.offsets[index];
    const bottom = this.offsets[index + 1];
    const view = this.container;
    if (top < view.scrollTop) view.scrollTop = top;
    else if (bottom > view.scrollTop + view.clientHeight) view.scrollTop = Math.min(top, bottom - view.clientHeight);
    this.draw();
  }

  // page is the number of rows in view.
  page() {
    const first = this.at(this.container.scrollTop);
    return Math.max(1, this.at(this.container.scrollTop + this.container.clientHeight) - first);
  }

  // drawAll draws rows up to a number, for print; false ends it.
  drawAll(limit) {
    this.all = limit;
    this.container.classList.toggle('all', Boolean(limit));
    this.draw();
  }
}
