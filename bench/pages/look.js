// Shows each page in frames as wide as a telephone and as a screen, light and dark, and writes down what is wrong with them.
// In: screens' widths and pages by name. Out: the element "found", JSON: sentences, and how high each page is in each frame.
const [SCREENS, ALL] = "PAGES";
const found = [], high = [];

// Colours as [red, green, blue, alpha], 0 to 255 and 0 to 1.
const colour = text => { const it = (text.match(/[\d.]+/g) || [0, 0, 0, 0]).map(Number); return it.length < 4 ? [...it, 1] : it; };
const over = (top, below) => [0, 1, 2].map(at => top[at] * top[3] + below[at] * (1 - top[3])).concat(1);
// WCAG 2.2, relative luminance and contrast ratio.
const light = c => { const [r, g, b] = c.map(it => (it /= 255) <= 0.04045 ? it / 12.92 : ((it + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
const contrast = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };

function ground(w, element) {
  const layers = [];
  for (let it = element; it && it.nodeType === 1; it = it.parentElement) {
    const rect = it.tagName === 'g' && it.querySelector('rect');
    layers.push(colour(rect && w.getComputedStyle(rect).fill !== 'none' ? w.getComputedStyle(rect).fill : w.getComputedStyle(it).backgroundColor));
    if (layers.at(-1)[3] === 1) break;
  }
  return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255, 1]);
}

async function look(name, page, screen, scheme) {
  const frame = document.createElement('iframe');
  frame.style.cssText = `width:${screen}px;height:900px;border:0;color-scheme:${scheme}`;
  const shown = new Promise(done => { frame.onload = done; });
  frame.srcdoc = page;
  document.body.append(frame);
  await shown;
  const w = frame.contentWindow, d = frame.contentDocument;
  const say = text => { const all = `${name} at ${screen} px, ${scheme}: ${text}`; if (!found.includes(all)) found.push(all); };
  if (w.matchMedia('(prefers-color-scheme:dark)').matches !== (scheme === 'dark')) say('the browser does not show it so');
  high.push(d.documentElement.scrollHeight);
  d.querySelectorAll('details').forEach(it => { it.open = true; });
  if (d.documentElement.scrollWidth > w.innerWidth) say(`${d.documentElement.scrollWidth} px wide`);
  const areas = [], texts = d.createTreeWalker(d.body, NodeFilter.SHOW_TEXT);
  for (let node; (node = texts.nextNode());) {
    const parent = node.parentElement, words = node.data.trim().slice(0, 40);
    if (!words || parent.closest('title')) continue;
    const range = d.createRange(), wide = parent.closest('.wide'), look = w.getComputedStyle(parent);
    const room = wide ? wide.getBoundingClientRect() : { left: -1, right: w.innerWidth + 1 };
    range.selectNodeContents(node);
    for (const area of range.getClientRects()) {
      if (area.width < 1) continue;
      const [left, right] = [Math.max(area.left, room.left), Math.min(area.right, room.right)];
      if (!wide && right - left < area.width - 1) say(`'${words}' is cut off`);
      if (right > left) areas.push({ left, right, top: area.top, bottom: area.bottom, words, node });
    }
    for (let it = parent; it && it !== d.body; it = it.parentElement) {
      if (it !== wide && w.getComputedStyle(it).overflowX !== 'visible' && it.scrollWidth > it.clientWidth + 1 && it.clientWidth) say(`'${words}' is clipped`);
    }
    const svg = parent.ownerSVGElement, px = parseFloat(look.fontSize) * (svg ? svg.getScreenCTM().a : 1);
    if (px < 9.9) say(`'${words}' has letters of ${px.toFixed(1)} px`);
    const below = ground(w, parent), ink = over(colour(svg ? look.fill : look.color), below), ratio = contrast(ink, below);
    if (ratio < 4.5) say(`'${words}' has a contrast of ${ratio.toFixed(1)}: ${ink} on ${below}`);
  }
  areas.sort((a, b) => a.top - b.top);
  areas.forEach((a, at) => {
    for (let next = at + 1; next < areas.length && areas[next].top < a.bottom; next++) {
      const b = areas[next], wide = Math.min(a.right, b.right) - Math.max(a.left, b.left), tall = Math.min(a.bottom, b.bottom) - b.top;
      if (a.node !== b.node && wide > 2 && tall > 0.4 * Math.min(a.bottom - a.top, b.bottom - b.top)) say(`'${a.words}' and '${b.words}' overlap`);
    }
  });
  frame.remove();
}

(async () => {
  try {
    for (const [name, page] of ALL) for (const screen of SCREENS) for (const scheme of ['light', 'dark']) await look(name, page, screen, scheme);
  } catch (error) {
    found.push(`look.js: ${error.stack}`);
  }
  const out = document.createElement('pre');
  out.id = 'found';
  out.textContent = JSON.stringify([found, high]);
  document.body.append(out);
})();
