// Makes the plots and tables of a page interactive. The page is complete
// without it. Text from the page is only ever set as text, never as HTML.
'use strict';
(() => {
  const numbers = text => text ? text.split(' ').map(Number) : [];
  const svgElement = (name, attributes) => {
    const made = document.createElementNS('http://www.w3.org/2000/svg', name);
    for (const key in attributes) made.setAttribute(key, attributes[key]);
    return made;
  };
  const htmlElement = (name, text, className) => {
    const made = document.createElement(name);
    made.textContent = text;
    if (className) made.className = className;
    return made;
  };
  const show = value => {
    const size = Math.abs(value);
    return size && (size < 1e-3 || size >= 1e6) ? value.toExponential(3)
      : String(Number(value.toPrecision(5)));
  };

  // Exponential moving average, corrected for its start at zero.
  const average = (values, weight) => {
    let sum = 0, rest = 1;
    return values.map(value => {
      sum = weight * sum + (1 - weight) * value;
      rest *= weight;
      return sum / (1 - rest);
    });
  };

  // Coordinates of a plot's values, as line_plot.py computes them.
  const scaleOf = svg => {
    const [left, top, right, bottom] = numbers(svg.dataset.frame);
    const [x0, x1] = numbers(svg.dataset.x), [y0, y1] = numbers(svg.dataset.y);
    const level = svg.dataset.log ? Math.log10 : value => value;
    return {
      left, top, right, bottom,
      x: value => left + (value - x0) / (x1 - x0) * (right - left),
      y: value => bottom
        - (level(value) - level(y0)) / (level(y1) - level(y0))
        * (bottom - top),
    };
  };

  const plots = [...document.querySelectorAll('.plot')].map(figure => {
    const svg = figure.querySelector('svg'), scale = scaleOf(svg);
    const curves = [...svg.querySelectorAll('.curve')].map(group => {
      const line = group.querySelector('path');
      const values = numbers(group.dataset.y);
      return {
        group, line, values, shown: values, steps: numbers(group.dataset.x),
        name: group.dataset.name,
        color: [...group.classList].find(one => /^c\d$/.test(one)),
      };
    });
    return {figure, svg, scale, curves};
  }).filter(plot => plot.curves.length);

  const smooth = weight => {
    for (const {scale, curves} of plots)
      for (const curve of curves) {
        if (!curve.line) continue;
        curve.drawn?.remove();
        curve.drawn = null;
        curve.shown = weight ? average(curve.values, weight) : curve.values;
        curve.line.classList.toggle('faint', weight > 0);
        if (!weight) continue;
        const points = curve.shown.map((value, index) =>
          `${scale.x(curve.steps[index]).toFixed(1)},`
          + scale.y(value).toFixed(1));
        curve.drawn = svgElement('path', {d: `M${points.join(' ')}`});
        curve.group.append(curve.drawn);
      }
  };

  const nearest = (steps, x, scale) => {
    let best = 0;
    for (let index = 1; index < steps.length; index++)
      if (Math.abs(scale.x(steps[index]) - x)
          <= Math.abs(scale.x(steps[best]) - x)) best = index;
    return best;
  };

  for (const {figure, svg, scale, curves} of plots) {
    const cursor = svgElement('path', {class: 'cursor off'});
    const tip = htmlElement('div', '', 'tip off');
    svg.append(cursor);
    figure.append(tip);
    const hide = () => [cursor, tip].forEach(one => one.classList.add('off'));
    const point = event => {
      const box = svg.getBoundingClientRect(), whole = svg.viewBox.baseVal;
      const x = (event.clientX - box.left) / box.width * whole.width;
      const visible = curves.filter(
        ({group}) => !group.classList.contains('off'));
      if (x < scale.left - 8 || x > scale.right + 8 || !visible.length)
        return hide();
      const found = visible.map(curve =>
        [curve, nearest(curve.steps, x, scale)]);
      const distance = ([curve, index]) =>
        Math.abs(scale.x(curve.steps[index]) - x);
      found.sort((a, b) => distance(a) - distance(b));
      const step = found[0][0].steps[found[0][1]];
      const at = scale.x(step);
      cursor.setAttribute('d', `M${at} ${scale.top}V${scale.bottom}`);
      const lines = visible.map(curve => {
        const index = nearest(curve.steps, at, scale);
        const where = curve.steps[index];
        const line = htmlElement('div', '');
        const name = curve.name ? `${curve.name}: ` : '';
        line.append(htmlElement('i', '● ', curve.color), htmlElement('b',
          name + show(curve.shown[index])
          + (where === step ? '' : ` (step ${where})`)));
        return line;
      });
      tip.replaceChildren(htmlElement('div', `step ${step}`), ...lines);
      [cursor, tip].forEach(one => one.classList.remove('off'));
      const outer = figure.getBoundingClientRect();
      const place = box.left - outer.left + at / whole.width * box.width;
      tip.style.left = place > outer.width / 2 ? 'auto' : `${place + 10}px`;
      tip.style.right = place > outer.width / 2
        ? `${outer.width - place + 10}px` : 'auto';
      tip.style.top = `${box.top - outer.top + 8}px`;
    };
    svg.addEventListener('pointermove', point);
    svg.addEventListener('pointerdown', point);
    svg.addEventListener('pointerleave', hide);
    figure.querySelectorAll('.legend span').forEach((entry, index) => {
      const toggle = () => {
        const off = curves[index].group.classList.toggle('off');
        entry.setAttribute('aria-pressed', String(!off));
        hide();
      };
      entry.setAttribute('role', 'button');
      entry.setAttribute('aria-pressed', 'true');
      entry.tabIndex = 0;
      entry.title = 'Click to hide or show this curve.';
      entry.addEventListener('click', toggle);
      entry.addEventListener('keydown', event => {
        if (event.key !== 'Enter' && event.key !== ' ') return;
        event.preventDefault();
        toggle();
      });
    });
  }

  if (plots.some(({curves}) => curves.some(({line}) => line))) {
    const label = htmlElement('label', 'Smoothing: moving average ', 'soft');
    const slider = htmlElement('input', '');
    const weight = htmlElement('output', ' 0');
    Object.assign(slider, {type: 'range', min: 0, max: 0.99, step: 0.01});
    slider.value = 0;
    slider.addEventListener('input', () => {
      weight.textContent = ` ${slider.value}`;
      smooth(Number(slider.value));
    });
    label.append(slider, weight);
    document.querySelector('.plots').before(label);
  }

  // A click on a heading sorts, by number if all cells are numbers.
  const sortable = document.querySelectorAll('table.sortable');
  for (const table of sortable)
    table.querySelectorAll('thead th').forEach((heading, column) => {
      const sort = () => {
        const up = heading.getAttribute('aria-sort') !== 'ascending';
        table.querySelectorAll('th').forEach(
          one => one.removeAttribute('aria-sort'));
        heading.setAttribute('aria-sort', up ? 'ascending' : 'descending');
        const rows = [...table.tBodies[0].rows];
        const text = row =>
          row.cells[column].textContent.replace(/ \*$/, '');
        const numeric = rows.every(row => !isNaN(text(row)));
        const key = row => numeric && text(row) ? Number(text(row)) : text(row);
        rows.sort((a, b) =>
          (key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : 0) * (up ? 1 : -1));
        table.tBodies[0].append(...rows);
      };
      heading.tabIndex = 0;
      heading.title = 'Click to sort.';
      heading.addEventListener('click', sort);
      heading.addEventListener('keydown', event => {
        if (event.key === 'Enter') sort();
      });
    });
})();
