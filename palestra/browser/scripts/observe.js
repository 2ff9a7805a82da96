// Describe the page as a list of nodes with stable numbers, roles and names, in the form of an accessibility tree.
(() => {
  const P = window.__palestra;
  if (P.observe) return;
  let numbers = new WeakMap(), nodes = new Map(), nextNumber = 1;
  P.forget = () => { numbers = new WeakMap(); nodes = new Map(); nextNumber = 1; };
  function numberOf(node) {
    let number = numbers.get(node);
    if (number === undefined) { number = nextNumber++; numbers.set(node, number); nodes.set(number, new WeakRef(node)); }
    return number;
  }
  P.node = number => { const ref = nodes.get(number); const node = ref && ref.deref(); return node && node.isConnected ? node : null; };

  const TAG_ROLES = {A: 'link', ARTICLE: 'article', ASIDE: 'complementary', BUTTON: 'button', CANVAS: 'canvas', DIALOG: 'dialog',
    DETAILS: 'group', FIELDSET: 'group', FIGURE: 'figure', FOOTER: 'contentinfo', FORM: 'form', H1: 'heading', H2: 'heading',
    H3: 'heading', H4: 'heading', H5: 'heading', H6: 'heading', HEADER: 'banner', HR: 'separator', IFRAME: 'Iframe', IMG: 'img',
    LABEL: 'LabelText', LEGEND: 'Legend', LI: 'listitem', MAIN: 'main', METER: 'meter', NAV: 'navigation', OL: 'list',
    OPTION: 'option', P: 'paragraph', PROGRESS: 'progressbar', SECTION: 'region', SELECT: 'combobox', SUMMARY: 'DisclosureTriangle',
    TABLE: 'table', TD: 'gridcell', TEXTAREA: 'textbox', TH: 'columnheader', TR: 'row', UL: 'list', VIDEO: 'Video'};
  const INPUT_ROLES = {button: 'button', checkbox: 'checkbox', color: 'ColorWell', file: 'button', image: 'button', number: 'spinbutton',
    radio: 'radio', range: 'slider', reset: 'button', search: 'searchbox', submit: 'button'};
  const SHAPES = new Set(['circle', 'ellipse', 'line', 'path', 'polygon', 'polyline', 'rect']);
  const SKIPPED = new Set(['SCRIPT', 'STYLE', 'NOSCRIPT', 'TEMPLATE', 'HEAD', 'META', 'LINK', 'BR', 'WBR']);
  const NAMED_BY_CONTENT = new Set(['button', 'link', 'heading', 'option', 'tab', 'menuitem', 'gridcell', 'columnheader', 'rowheader',
    'listitem', 'LabelText', 'DisclosureTriangle', 'paragraph', 'Legend', 'switch', 'treeitem', 'checkbox', 'radio', 'clickable', 'text']);
  const ACTIVE = new Set(['button', 'link', 'textbox', 'searchbox', 'spinbutton', 'checkbox', 'radio', 'combobox', 'listbox', 'option',
    'slider', 'tab', 'menuitem', 'switch', 'treeitem', 'clickable', 'DisclosureTriangle', 'ColorWell']);
  const ICON_ROLES = new Set(['button', 'link', 'tab', 'menuitem']);
  const CONTAINERS = new Set(['paragraph', 'list', 'listitem', 'row', 'form', 'region', 'group', 'status', 'log', 'LabelText', 'gridcell',
    'table', 'navigation', 'tabpanel', 'menu', 'complementary', 'contentinfo', 'banner', 'main', 'article']);
  const COLORS = {'#000000': 'black', '#ffffff': 'white', '#ff0000': 'red', '#00ff00': 'lime', '#008000': 'green', '#0000ff': 'blue',
    '#ffff00': 'yellow', '#ffa500': 'orange', '#800080': 'purple', '#ffc0cb': 'pink', '#a52a2a': 'brown', '#808080': 'grey',
    '#00ffff': 'cyan', '#ff00ff': 'magenta', '#ee82ee': 'violet', '#008080': 'teal', '#808000': 'olive', '#000080': 'navy'};

  const squeeze = text => text.replace(/\s+/g, ' ').trim();
  function colorName(value) {
    const match = /^rgba?\((\d+), (\d+), (\d+)(?:, ([\d.]+))?\)$/.exec(value);
    if (!match || match[4] === '0') return '';
    const hex = '#' + match.slice(1, 4).map(part => (+part).toString(16).padStart(2, '0')).join('');
    return COLORS[hex] || hex;
  }
  // An element keeps its role while the mouse is above it, although the cursor may depend on :hover.
  const pointers = new WeakMap();
  function hasPointer(element, style) {
    const parent = element.parentElement;
    const now = style.cursor === 'pointer' && !!parent && getComputedStyle(parent).cursor !== 'pointer';
    if (!element.matches(':hover')) pointers.set(element, now);
    return pointers.has(element) ? pointers.get(element) : now;
  }
  function roleOf(element, style) {
    const given = element.getAttribute('role');
    if (given && given !== 'presentation' && given !== 'none') return given.split(' ')[0];
    const tag = element.tagName;
    if (tag === 'INPUT') return INPUT_ROLES[element.type] || 'textbox';
    if (tag === 'SELECT' && (element.multiple || element.size > 1)) return 'listbox';
    if (tag === 'A' && !element.hasAttribute('href')) return P.reacts(element) ? 'link' : '';
    if (TAG_ROLES[tag]) return TAG_ROLES[tag];
    if (SHAPES.has(tag)) return tag;
    if (tag === 'text' || tag === 'tspan') return tag === 'text' ? 'text' : '';
    if (element.isContentEditable && !(element.parentElement && element.parentElement.isContentEditable)) return 'textbox';
    if (P.reacts(element) || element.hasAttribute('onclick') || element.tabIndex >= 0 || element.draggable) return 'clickable';
    return hasPointer(element, style) ? 'clickable' : '';
  }
  const byId = (element, name) => squeeze((element.getAttribute(name) || '').split(/\s+/).map(id => {
    const other = id && document.getElementById(id);
    return other ? other.textContent : '';
  }).join(' '));
  function givenName(element, role) {
    let name = squeeze(element.getAttribute('aria-label') || '') || byId(element, 'aria-labelledby');
    if (name) return name;
    const tag = element.tagName;
    if (tag === 'IMG' || element.type === 'image') return squeeze(element.alt || element.title || '');
    if (tag === 'INPUT' && ['button', 'submit', 'reset'].includes(element.type)) return element.value || (element.type === 'submit' ? 'Submit' : '');
    if (element.labels && element.labels.length) name = squeeze([...element.labels].map(label => labelText(label)).join(' '));
    return name || squeeze(element.getAttribute('placeholder') || element.getAttribute('title') || '');
  }
  function labelText(label) {
    let text = '';
    for (const child of label.childNodes) {
      if (child.nodeType === 3) text += child.data;
      else if (child.nodeType === 1 && !['INPUT', 'SELECT', 'TEXTAREA', 'BUTTON'].includes(child.tagName)) text += labelText(child);
    }
    return text;
  }
  function boxOf(node) {
    if (node.nodeType !== 3) return node.getBoundingClientRect();
    const range = document.createRange();
    range.selectNodeContents(node);
    return range.getBoundingClientRect();
  }
  // The point at which a user would click: the middle of the first line of a text or link, otherwise of the element.
  function pointOf(node) {
    let rects;
    if (node.nodeType === 3) { const range = document.createRange(); range.selectNodeContents(node); rects = range.getClientRects(); }
    else rects = node.getClientRects();
    const rect = [...rects].find(rect => rect.width > 0 && rect.height > 0) || boxOf(node);
    return [rect.left + rect.width / 2, rect.top + rect.height / 2];
  }

  function properties(element, role, style, rect, options) {
    const props = {};
    const tag = element.tagName;
    if (document.activeElement === element && element !== document.body) props.focused = true;
    if (tag === 'INPUT' || tag === 'TEXTAREA') {
      if (element.type === 'checkbox' || element.type === 'radio') props.checked = element.checked;
      else if (!['button', 'submit', 'reset', 'image'].includes(element.type) && element.value !== '') props.value = element.value;
      if (element.type === 'range' || element.type === 'number') {
        if (element.min !== '') props.min = +element.min;
        if (element.max !== '') props.max = +element.max;
      }
      if (tag === 'TEXTAREA') props.multiline = true;
      if (element.readOnly) props.readonly = true;
      if (element.required) props.required = true;
    } else if (role === 'textbox') props.value = squeeze(element.textContent);
    if (element.disabled) props.disabled = true;
    if (tag === 'OPTION' && element.selected) props.selected = true;
    if (tag === 'DETAILS') props.expanded = element.open;
    for (const name of ['checked', 'expanded', 'selected', 'pressed', 'valuenow']) {
      const value = element.getAttribute('aria-' + name);
      if (value !== null && props[name] === undefined) props[name] = value === 'true' ? true : value === 'false' ? false : value;
    }
    if (SHAPES.has(tag) || tag === 'text') {
      const fill = colorName(style.fill), stroke = colorName(style.stroke);
      if (fill && tag !== 'line') props.fill = fill;
      if (stroke && stroke !== fill) props.stroke = stroke;
    } else if (role === 'clickable') {
      const background = colorName(style.backgroundColor);
      if (background) props.color = background;
    }
    if (options.coordinates || SHAPES.has(tag) || tag === 'text' || tag === 'canvas' || role === 'canvas' || role === 'slider') {
      props.center = [Math.round(rect.left + rect.width / 2), Math.round(rect.top + rect.height / 2)];
      props.size = [Math.round(rect.width), Math.round(rect.height)];
    }
    return props;
  }

  const loaded = new Set(); // pictures that style sheets use as content
  // Return the nodes of the page after everything that its layout depends on has been loaded.
  P.settled = async options => {
    for (let round = 0; round < 5; round++) {
      if (document.fonts.status === 'loading') await P.within(document.fonts.ready, 5000);
      await P.images();
      const pictures = new Set();
      const list = collect(options, pictures);
      const missing = [...pictures].filter(url => !loaded.has(url));
      if (!missing.length) return numbered(list);
      await Promise.all(missing.map(P.load));
      for (const url of missing) loaded.add(url);
    }
    return P.observe(options);
  };
  const numbered = list => { for (const item of list) item[0] = numberOf(item[0]); return list; };
  P.observe = options => numbered(collect(options, new Set()));
  function collect(options, pictures) {
    const hidden = new Set((options.hidden || []).map(selector => document.querySelector(selector)).filter(Boolean));
    const list = [];
    const add = (node, role, name, props, depth) => { list.push([node, role, name.slice(0, options.maxName || 300), props, depth]); };
    const inView = rect => !options.viewport ||
      (rect.bottom > 0 && rect.right > 0 && rect.top < innerHeight && rect.left < innerWidth);
    add(document, 'RootWebArea', document.title, document.activeElement === document.body || !document.activeElement ? {focused: true} : {}, 0);
    const visit = (parent, depth) => {
      for (const node of parent.childNodes) {
        if (list.length >= (options.maxNodes || 5000)) return;
        if (node.nodeType === 3) {
          const text = squeeze(node.data);
          if (!text) continue;
          const rect = boxOf(node);
          if (rect.width > 0 && rect.height > 0 && inView(rect) && !(parent.namespaceURI || '').endsWith('svg'))
            add(node, 'StaticText', text, options.coordinates ? {center: pointOf(node).map(Math.round)} : {}, depth);
          continue;
        }
        if (node.nodeType !== 1 || SKIPPED.has(node.tagName) || hidden.has(node)) continue;
        if (node.getAttribute('aria-hidden') === 'true' && !node.contains(document.activeElement)) continue;
        const style = getComputedStyle(node);
        if (style.display === 'none') continue;
        const picture = style.content !== 'normal' && /^url\("(.+)"\)/.exec(style.content);
        if (picture) pictures.add(picture[1]);
        const rect = node.getBoundingClientRect();
        if ((rect.height === 0 || rect.width === 0) && style.overflowX !== 'visible' && node.tagName !== 'BODY') continue;
        if (style.visibility === 'hidden' || style.visibility === 'collapse') { visit(node, depth); continue; }
        let role = roleOf(node, style);
        if (role && rect.width === 0 && rect.height === 0 && !node.childNodes.length) role = '';
        if (role && !inView(rect)) { visit(node, depth); continue; }
        if (!role && options.boxes && !node.firstChild && rect.width >= 4 && rect.height >= 4 && colorName(style.backgroundColor)) {
          add(node, 'box', '', {color: colorName(style.backgroundColor)}, depth);
          continue;
        }
        if (!role) {
          if (node.shadowRoot) visit(node.shadowRoot, depth);
          visit(node, depth);
          continue;
        }
        const props = properties(node, role, style, rect, options);
        let name = givenName(node, role);
        if (node.tagName === 'SELECT') {
          add(node, role, name, props, depth);
          for (const option of node.options) add(option, 'option', squeeze(option.text), option.selected ? {selected: true} : {}, depth + 1);
          continue;
        }
        if (node.tagName === 'TEXTAREA') { add(node, role, name, props, depth); continue; }
        const place = list.length;
        add(node, role, name, props, depth);
        if (node.tagName === 'IFRAME') {
          try { if (node.contentDocument && node.contentDocument.body) visit(node.contentDocument.body, depth + 1); } catch (error) { /* another origin */ }
          continue;
        }
        if (role === 'textbox') continue;
        visit(node, depth + 1);
        const inner = list.slice(place + 1);
        const plain = inner.every(item => item[1] === 'StaticText');
        if (plain ? NAMED_BY_CONTENT.has(role) : ICON_ROLES.has(role) && inner.every(item => item[1] === 'StaticText' || SHAPES.has(item[1]))) {
          if (!name) list[place][2] = name = squeeze(plain ? node.textContent : inner.map(item => item[2]).join(' ')).slice(0, options.maxName || 300);
          list.length = place + 1;
        }
        if (role === 'LabelText' && inner.length > 1) { // a label around its field repeats the field's name
          const fields = inner.filter(item => item[1] !== 'StaticText');
          const text = squeeze(inner.filter(item => item[1] === 'StaticText').map(item => item[2]).join(' '));
          if (fields.length === 1 && fields[0][2] === text) {
            fields[0][4] = depth;
            list.splice(place, list.length - place, fields[0]);
            continue;
          }
        }
        if (!name && list.length === place + 1) {
          if (role === 'clickable' || ICON_ROLES.has(role)) {
            const hint = squeeze((node.getAttribute('class') || '') + ' ' + node.id);
            if (hint) props.class = hint;
            const background = colorName(style.backgroundColor);
            if (background) props.color = background;
          } else if (CONTAINERS.has(role)) list.length = place;
        }
      }
    };
    visit(document.body || document.documentElement, 1);
    return list;
  }

  // Bring a node into view and return the point to click; text explains why it cannot be used.
  P.locate = number => {
    let node = P.node(number);
    if (!node) return {error: nodes.has(number) ? `element [${number}] is no longer on the page` : `there is no element [${number}] on this page`};
    if (node === document) node = document.documentElement;
    let element = node.nodeType === 1 ? node : node.parentElement;
    const option = element.tagName === 'OPTION';
    if (option && element.closest('select') && !(element.closest('select').size > 1 || element.closest('select').multiple))
      return {option: true, tag: 'OPTION'};
    if (!element.getClientRects().length && node.nodeType === 1) return {error: `element [${number}] is not visible`};
    let [x, y] = pointOf(node);
    if (x < 0 || y < 0 || x >= innerWidth || y >= innerHeight || clipped(element, x, y)) {
      element.scrollIntoView({block: 'center', inline: 'nearest'});
      [x, y] = pointOf(node);
    }
    if (!hits(element, ...uncovered(node, element, x, y)) && fixed(document.elementFromPoint(x, y))) { // below a bar
      element.scrollIntoView({block: 'center', inline: 'nearest'});
      [x, y] = pointOf(node);
    }
    [x, y] = uncovered(node, element, x, y);
    return {x, y, tag: element.tagName, type: element.type || '', editable: element.isContentEditable, disabled: !!element.disabled,
      readonly: !!element.readOnly, option};
  };
  // Return another point of the element if the first one is covered by an element that lies above it.
  const hits = (element, x, y) => { const top = document.elementFromPoint(x, y); return top && (element.contains(top) || top.contains(element)); };
  const fixed = node => !!node && (['fixed', 'sticky'].includes(getComputedStyle(node).position) || fixed(node.parentElement));
  function uncovered(node, element, x, y) {
    if (hits(element, x, y)) return [x, y];
    const rect = boxOf(node);
    for (const across of [0.5, 0.1, 0.9, 0.3, 0.7])
      for (const down of [0.5, 0.1, 0.9, 0.3, 0.7]) {
        const point = [rect.left + rect.width * across, rect.top + rect.height * down];
        if (hits(element, ...point)) return point;
      }
    return [x, y];
  }
  function clipped(element, x, y) {
    for (let parent = element.parentElement; parent && parent !== document.body; parent = parent.parentElement) {
      const style = getComputedStyle(parent);
      if (style.overflowX === 'visible' && style.overflowY === 'visible') continue;
      const rect = parent.getBoundingClientRect();
      if (x < rect.left || x > rect.right || y < rect.top || y > rect.bottom) return true;
    }
    return false;
  }
  const fire = (element, ...types) => { for (const type of types) element.dispatchEvent(new Event(type, {bubbles: true})); };
  const elementOf = number => { const node = P.node(number); return node && (node.nodeType === 1 ? node : node.parentElement); };
  P.focus = number => { const element = elementOf(number); if (element) element.focus({preventScroll: false}); };
  // Select the whole content of a field, so that typing replaces it; clear fields that do not support a selection.
  P.selectContent = number => {
    const element = elementOf(number);
    if (!element) return;
    element.focus();
    if (element.isContentEditable) {
      const range = document.createRange(); range.selectNodeContents(element);
      const selection = getSelection(); selection.removeAllRanges(); selection.addRange(range);
    } else if (element.select) element.select();
  };
  P.setValue = (number, value) => { // for inputs with a picker, such as dates and sliders
    const element = elementOf(number);
    const proto = element instanceof HTMLTextAreaElement ? HTMLTextAreaElement.prototype : HTMLInputElement.prototype;
    Object.getOwnPropertyDescriptor(proto, 'value').set.call(element, value);
    fire(element, 'input', 'change');
    return element.value;
  };
  P.choose = (number, wanted) => {
    const element = elementOf(number);
    if (!element) return `there is no element [${number}] on this page`;
    const select = element.tagName === 'OPTION' ? element.closest('select') : element;
    if (!select || select.tagName !== 'SELECT') return `element [${number}] is not a list of options`;
    const options = [...select.options];
    const labels = wanted === null ? [squeeze(element.text)] : wanted;
    const chosen = labels.map(label => wanted === null ? element
      : options.find(option => squeeze(option.text) === label) || options.find(option => option.value === label)
      || options.find(option => squeeze(option.text).toLowerCase() === label.toLowerCase()));
    const missing = chosen.findIndex(option => !option);
    if (missing >= 0) return `element [${number}] has no option '${labels[missing]}'; the options are ${options.slice(0, 20).map(o => `'${squeeze(o.text)}'`).join(', ')}`;
    select.focus();
    if (select.multiple) for (const option of options) option.selected = chosen.includes(option);
    else chosen[0].selected = true;
    fire(select, 'input', 'change');
    return '';
  };
  P.selectText = (number, start, end) => { // select characters of a text
    const node = P.node(number);
    const range = document.createRange();
    const text = node.nodeType === 3 ? node : document.createTreeWalker(node, NodeFilter.SHOW_TEXT).nextNode();
    if (!text) return;
    range.setStart(text, Math.min(start, text.length)); range.setEnd(text, Math.min(end, text.length));
    const selection = getSelection(); selection.removeAllRanges(); selection.addRange(range);
  };
  P.scroll = (x, y) => { // the part of the page that has the focus, otherwise the page, otherwise its largest part that scrolls
    const scrolls = element => {
      const style = getComputedStyle(element);
      return (y && element.scrollHeight > element.clientHeight + 1 && /auto|scroll/.test(style.overflowY)) ||
        (x && element.scrollWidth > element.clientWidth + 1 && /auto|scroll/.test(style.overflowX)) ||
        (y && ['TEXTAREA', 'SELECT'].includes(element.tagName) && element.scrollHeight > element.clientHeight + 1);
    };
    const page = document.scrollingElement || document.documentElement;
    let target = document.activeElement;
    while (target && target !== document.body && !scrolls(target)) target = target.parentElement;
    if (!target || target === document.body) {
      target = page;
      if (page.scrollHeight <= innerHeight + 1 || (x && page.scrollWidth <= innerWidth + 1))
        target = [...document.querySelectorAll('body *')].filter(scrolls)
          .sort((a, b) => b.clientWidth * b.clientHeight - a.clientWidth * a.clientHeight)[0] || page;
    }
    target.scrollBy(target === page ? x : Math.sign(x) * Math.min(Math.abs(x), target.clientWidth * 0.9),
      target === page ? y : Math.sign(y) * Math.min(Math.abs(y), target.clientHeight * 0.9));
  };
  P.html = options => {
    const hidden = new Set((options.hidden || []).map(selector => document.querySelector(selector)).filter(Boolean));
    const KEPT = ['id', 'class', 'type', 'name', 'value', 'href', 'placeholder', 'title', 'alt', 'for', 'role', 'aria-label', 'style'];
    const escape = text => text.replace(/&/g, '&amp;').replace(/</g, '&lt;');
    const write = node => {
      if (node.nodeType === 3) return squeeze(node.data) && escape(node.data.replace(/\s+/g, ' '));
      if (node.nodeType !== 1 || (SKIPPED.has(node.tagName) && node.tagName !== 'BR') || hidden.has(node)) return '';
      if (getComputedStyle(node).display === 'none') return '';
      const tag = node.tagName.toLowerCase();
      const attributes = KEPT.filter(name => node.hasAttribute(name) && (name !== 'style' || options.styles))
        .map(name => ` ${name}="${node.getAttribute(name).replace(/"/g, '&quot;')}"`).join('');
      const state = (node.checked ? ' checked' : '') + (node.selected ? ' selected' : '') +
        (['INPUT', 'TEXTAREA'].includes(node.tagName) && node.value && !node.hasAttribute('value') ? ` value="${escape(node.value)}"` : '');
      const inner = [...node.childNodes].map(write).join('');
      return `<${tag} bid="${numberOf(node)}"${attributes}${state}>${inner}</${tag}>`;
    };
    return write(document.body);
  };
  // Draw numbered boxes around the elements that can be used, for a screenshot.
  P.mark = options => {
    P.unmark();
    const layer = document.createElement('div');
    layer.id = '__palestra_marks';
    layer.style.cssText = 'position:fixed;inset:0;pointer-events:none;z-index:2147483647';
    const palette = ['#e6194b', '#3cb44b', '#4363d8', '#f58231', '#911eb4', '#008080'];
    for (const [number, role] of P.observe({...options, viewport: true})) {
      if (!ACTIVE.has(role) && !SHAPES.has(role)) continue;
      const node = P.node(number);
      const rect = node.getBoundingClientRect();
      if (!rect.width || !rect.height) continue;
      const color = palette[number % palette.length];
      const box = document.createElement('div');
      box.style.cssText = `position:absolute;left:${rect.left}px;top:${rect.top}px;width:${rect.width}px;height:${rect.height}px;` +
        `box-sizing:border-box;border:1px solid ${color}`;
      const label = document.createElement('span');
      label.textContent = number;
      label.style.cssText = `position:absolute;left:-1px;top:-1px;font:bold 9px/10px monospace;color:#fff;background:${color};padding:0 1px`;
      box.appendChild(label);
      layer.appendChild(box);
    }
    document.documentElement.appendChild(layer);
  };
  P.unmark = () => { const layer = document.getElementById('__palestra_marks'); if (layer) layer.remove(); };
})();
