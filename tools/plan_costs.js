// Of the page of a plan: what bounds each stage, and what goes over the links of each level. Part of its script.
function perSecond(rate, unit) {
  const prefixes = ['', 'k', 'M', 'G', 'T', 'P'];
  let power = 0;
  for (; rate >= 1000 && power < 5; ++power) rate /= 1000;
  return `${rate.toFixed(1)} ${prefixes[power]}${unit}/s`;
}
const times = links => links.least_seconds > 0 ? (links.seconds / links.least_seconds).toFixed(2) : '-';
const heads = (table, names) => row(table, names.map(name => [name, 'head']));

// What kernels of each kind and type do, and the rates of these.
const dots = devices.flatMap((device, g) => device.roofline.parts
  .filter(part => part.flops > 0 && part.bytes > 0 && part.seconds > 0)
  .map(part => ({...part, g, name: device.name, x: part.flops / part.bytes, y: part.flops / part.seconds})));
const rates = new Map(devices.flatMap(d => d.roofline.parts.map(part => [`${part.work} of ${part.type}`, part.rate])));

// Names of what has the same rate.
function roofs() {
  const byRate = new Map();
  for (const [name, rate] of rates) byRate.set(rate, [...(byRate.get(rate) || []), name]);
  return [...byRate].map(([rate, names]) => [rate, names.length > 2 ? `${names[0]} and others` : names.join(', ')]);
}
// Of ten, from one logarithm to another, not many.
function powers(low, high, most) {
  const step = Math.max(1, Math.ceil((high - low) / most)), out = [];
  for (let e = Math.ceil(low); e <= high; e += step) out.push(10 ** e);
  return out;
}

// Operations a second over operations a byte, both by powers of ten. No dot is above the roof.
function drawRoofline() {
  const place = at('roofline'), bottom = 216, edge = 88;
  const [svg, width] = picture(place, 256, 'operations a second over operations a byte');
  if (!dots.length) return;
  const bandwidth = Math.max(...devices.map(d => d.roofline.bandwidth)), tops = roofs();
  const xs = [...dots.map(d => d.x), ...tops.map(([rate]) => rate / bandwidth)].map(Math.log10);
  const ys = [...dots.map(d => d.y), ...tops.map(([rate]) => rate)].map(Math.log10);
  const x0 = Math.min(...xs) - 0.4, x1 = Math.max(...xs) + 0.6, y0 = Math.min(...ys) - 0.4, y1 = Math.max(...ys) + 0.4;
  const X = x => edge + (Math.log10(x) - x0) / (x1 - x0) * (width - edge - right);
  const Y = y => bottom - (Math.log10(y) - y0) / (y1 - y0) * (bottom - 12);
  for (const y of powers(y0, y1, 6)) {
    add(svg, 'line', {x1: edge, x2: width - right, y1: Y(y), y2: Y(y), class: 'grid'});
    add(svg, 'text', {x: edge - 6, y: Y(y) + 4, 'text-anchor': 'end'}, perSecond(y, 'flop').replace('.0', ''));
  }
  for (const x of powers(x0, x1, Math.max(3, Math.floor((width - edge) / 90)))) {
    const last = X(x) > width - 40;
    add(svg, 'line', {x1: X(x), x2: X(x), y1: 8, y2: bottom, class: 'grid'});
    add(svg, 'text', {x: last ? width - 2 : X(x), y: bottom + 16, 'text-anchor': last ? 'end' : 'middle'},
      String(Number(x.toPrecision(1))));
  }
  add(svg, 'text', {x: width - 2, y: bottom + 34, 'text-anchor': 'end'}, 'operations a byte');
  const from = Math.max(10 ** x0, 10 ** y0 / bandwidth);
  for (const [rate, names] of tops) {
    const ridge = Math.max(from, rate / bandwidth);
    const d = `M${X(from)} ${Y(bandwidth * from)}L${X(ridge)} ${Y(bandwidth * ridge)}L${X(ridge)} ${Y(rate)}`;
    add(svg, 'path', {d: `${d}L${width - right} ${Y(rate)}`, fill: 'none', class: 'level roof'});
    add(svg, 'text', {x: width - right, y: Y(rate) - 5, 'text-anchor': 'end'}, names);
  }
  dots.forEach((d, i) => add(svg, 'circle', {cx: X(d.x), cy: Y(d.y), r: d.work === 'products' ? 6 : 4,
    style: `fill:${colours[d.g % 5]}`, 'data-part': i}));
  tips(place, svg, event => {
    const d = dots[event.target.dataset.part];
    return d ? `${d.name}, ${d.work} of ${d.type}: ${d.x.toPrecision(3)} operations a byte, ` +
      `${perSecond(d.y, 'flop')} of ${perSecond(d.rate, 'flop')}, in ${integer(d.kernels)} launches` : null;
  });
}
function listRoofline() {
  const table = at('stages');
  heads(table, ['stage', 'operations', 'bytes', 'operations a byte', 'computing', 'in memory', 'launches', 'bound by']);
  for (const {name, roofline: all} of devices) {
    row(table, [[name], [all.flops.toPrecision(4), 'number'], [bytes(Math.round(all.bytes)), 'number'],
      [all.intensity.toFixed(2), 'number'], [seconds(all.computing), 'number'], [seconds(all.memory), 'number'],
      [seconds(all.launching), 'number'], [all.bound_by]]);
  }
  label(table);
  legend(at('roofline-legend'), devices.map((device, g) => [device.name, colours[g % 5]]));
  at('roofline-about').textContent = `Memory has ${perSecond(devices[0].roofline.bandwidth, 'B')}` +
    [...rates].map(([name, rate]) => `, ${name} ${perSecond(rate, 'flop')}`).join('') + '.';
}

// The levels that join ranks of this plan, the widest first.
const levels = data.links.filter((link, l) => l === 0 || data.links[l - 1].ranks < data.ranks)
  .map(link => ({...link, joins: link.ranks || data.ranks})).reverse();
const deviceOf = [];
devices.forEach((device, g) => device.ranks.forEach(rank => { deviceOf[rank] = g; }));

// What each block that a level joins sends in a step over links of that level.
function linkBlocks(drawn) {
  return levels.flatMap((level, line) => {
    const blocks = [];
    for (let first = 0; first < drawn; first += level.joins) {
      const end = Math.min(first + level.joins, data.ranks);
      let sent = 0;
      for (let rank = first; rank < end; ++rank) sent += level.bytes[deviceOf[rank]];
      blocks.push({level, line, first, end, sent});
    }
    return blocks;
  });
}
// A line of boxes for each level, and the ranks below.
function drawLinks() {
  if (data.ranks < 2) return;
  const drawn = Math.min(data.ranks, 128), high = 24, step = 30, edge = 128, place = at('links');
  const [svg, width] = picture(place, (levels.length + 1) * step + 2, 'links by level, and ranks');
  const cell = (width - edge - 4) / drawn, X = rank => edge + rank * cell;
  const blocks = linkBlocks(drawn), most = Math.max(1, ...blocks.map(b => b.sent));
  const name = (line, text) => add(svg, 'text', {x: edge - 8, y: line * step + 18, 'text-anchor': 'end'}, text);
  levels.forEach((level, line) => name(line, level.name));
  blocks.forEach((b, i) => {
    const x = X(b.first), wide = Math.max(1, X(Math.min(b.end, drawn)) - x - 2), y = b.line * step + 2;
    const fill = faint(colours[2], Math.round(60 * b.sent / most)), text = bytes(Math.round(b.sent));
    add(svg, 'rect', {x, y, width: wide, height: high, rx: 3, style: `fill:${fill};stroke:var(--line)`,
      'data-block': i});
    if (wide > 8 * text.length) add(svg, 'text', {x: x + wide / 2, y: y + 16, 'text-anchor': 'middle',
      style: 'fill:var(--text);pointer-events:none'}, text);
  });
  const y = levels.length * step + 2;
  name(levels.length, drawn < data.ranks ? `${drawn} of ${data.ranks} ranks` : 'ranks');
  for (let rank = 0; rank < drawn; ++rank) {
    add(svg, 'rect', {x: X(rank), y, width: Math.max(0.5, cell - 2), height: high, rx: 3,
      fill: colours[deviceOf[rank] % 5], opacity: 0.85, 'data-end': rank});
    if (cell >= 24) add(svg, 'text', {x: X(rank) + cell / 2 - 1, y: y + 16, 'text-anchor': 'middle',
      style: 'fill:#fff;pointer-events:none'}, String(rank));
  }
  tips(place, svg, event => linkWords(event.target.dataset || {}, blocks));
}
function linkWords({block, end}, blocks) {
  const b = blocks[block];
  if (b) {
    return `ranks ${b.first} to ${b.end - 1}: ${bytes(Math.round(b.sent))} in a step. Each rank has ` +
      `${perSecond(b.level.bandwidth, 'B')} here, and ${seconds(b.level.message_seconds)} for a message`;
  }
  if (end === undefined) return null;
  const g = deviceOf[end];
  return `rank ${end} runs ${devices[g].name}, and sends ` + levels.map(level =>
    `${bytes(Math.round(level.bytes[g]))} over links of ${level.name} in ${seconds(level.seconds[g])}`).join(', ');
}
function listLinks() {
  const known = data.collectives.filter(c => c.links.level), table = at('bounds');
  at('links-section').hidden = !known.length;
  if (!known.length) return;
  const slowest = devices.reduce((a, b) => b.links.least_seconds > a.links.least_seconds ? b : a), {links} = slowest;
  at('links-about').textContent = `What a rank of ${slowest.name} sends needs ${seconds(links.least_seconds)} of a ` +
    `step at least, over links of ${links.level}. It takes ${seconds(links.seconds)}, ${times(links)} times as long.`;
  heads(table, ['what', 'over', 'virtual device', 'in', 'takes', 'links need', 'links of', 'times']);
  for (const {what, over, virtual_device: g, block, links: one} of known) {
    row(table, [[one.two_levels ? `${what} in two levels` : what], [over], [devices[g].name], [block, 'quiet'],
      [seconds(one.seconds), 'number'], [seconds(one.least_seconds), 'number'], [one.level, 'quiet'],
      [times(one), 'number']]);
  }
  label(table);
}
