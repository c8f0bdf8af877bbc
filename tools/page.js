// Of every page that the tool writes: what its data becomes, and words and pictures for it.
'use strict';
const data = JSON.parse(document.getElementById('data').textContent);
const at = id => document.getElementById(id);
const colours = ['--c0', '--c1', '--c2', '--c3', '--c4', '--c5'].map(c => `var(${c})`);

// Everything from the data enters the page as text, never as markup.
function add(parent, name, attributes = {}, text = null) {
  const svg = ['svg', 'line', 'path', 'text', 'rect', 'circle', 'g'].includes(name);
  const element = svg ? document.createElementNS('http://www.w3.org/2000/svg', name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== null) element.textContent = text;
  parent.appendChild(element);
  return element;
}
const integer = v => v.toLocaleString('en');
function bytes(n) {
  const units = ['bytes', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  for (; n >= 1024 && unit < 4; ++unit) n /= 1024;
  return (unit ? n.toFixed(1) : n) + ' ' + units[unit];
}
// Marks of 1, 2 or 5 times a power of ten; their number is bounded whatever the range.
function ticks(low, high, wanted) {
  const range = high - low;
  if (!(range > 0) || !isFinite(range)) return [low];
  const power = 10 ** Math.floor(Math.log10(range / wanted));
  const step = [1, 2, 5, 10].map(m => m * power).find(s => range / s <= wanted) || power * 10;
  const out = [];
  for (let i = Math.ceil(low / step); i <= Math.floor(high / step + 1e-9) && out.length < 30; ++i) out.push(i * step);
  return out;
}
function legend(place, names) {
  place.replaceChildren();
  for (const [name, colour] of names) {
    const item = add(place, 'span');
    add(item, 'i', {style: `background:${colour}`});
    item.append(name);
  }
}
// A box with words beside the pointer or the finger; `words` says them for what is pointed at, or gives null.
function tips(place, svg, words) {
  const tip = add(place, 'div', {class: 'tip'});
  const show = event => {
    const text = words(event);
    if (!text) { tip.style.display = 'none'; return; }
    const box = svg.getBoundingClientRect(), x = event.clientX - box.left;
    tip.textContent = text;
    tip.style.display = 'block';
    tip.style.left = Math.max(0, x + tip.offsetWidth + 12 > box.width ? x - tip.offsetWidth - 10 : x + 10) + 'px';
    tip.style.top = (event.clientY - box.top + 12) + 'px';
  };
  svg.addEventListener('pointermove', show);
  svg.addEventListener('pointerdown', show);
  svg.addEventListener('pointerleave', () => { tip.style.display = 'none'; });
}
function row(table, cells, attributes = {}) {
  const line = add(table, 'tr', attributes);
  cells.forEach(([text, kind]) => add(line, kind === 'head' ? 'th' : 'td', kind && kind !== 'head' ? {class: kind} : {}, text));
}

document.title = data.title;
at('title').textContent = data.title;
at('about').textContent = data.about;
for (const [name, value] of data.cards) {
  const card = add(at('cards'), 'div', {class: 'card'});
  add(card, 'b', {}, value);
  add(card, 'span', {}, name);
}
