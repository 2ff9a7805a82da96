// Replace the page's clock, timers and random numbers by ones that depend only on the seed and on `advance` calls.
// Runs before any script of the page. CSS animations are disabled.
(() => {
  if (window.__palestra) return;
  const RealDate = Date, EPOCH = /*EPOCH*/ 1704103200000;
  const nativeTimeout = window.setTimeout.bind(window);
  const FRAME_MS = 50; // time between animation frames
  const MAX_CALLBACKS = 20000; // per `advance`, against pages that restart a timer without delay
  let now = EPOCH, loaded = EPOCH, next = 1;
  let timers = new Map(); // id -> {at, order, callback, args, every}
  const P = {};
  Object.defineProperty(window, '__palestra', {value: P});

  function FakeDate(...args) {
    if (!new.target) return new RealDate(now).toString();
    return Reflect.construct(RealDate, args.length ? args : [now], new.target);
  }
  FakeDate.prototype = RealDate.prototype;
  FakeDate.prototype.constructor = FakeDate;
  Object.setPrototypeOf(FakeDate, RealDate);
  FakeDate.now = () => now;
  window.Date = FakeDate;
  performance.now = () => now - loaded;

  function add(callback, delay, args, repeats, frame) {
    const wait = Math.min(Math.max(+delay || 0, repeats ? 4 : 1), 2 ** 31);
    const id = next++;
    timers.set(id, {at: now + wait, order: id, callback, args, every: repeats ? wait : 0, frame});
    return id;
  }
  const remove = id => { timers.delete(id); };
  window.setTimeout = (callback, delay, ...args) => add(callback, delay, args, false);
  window.setInterval = (callback, delay, ...args) => add(callback, delay, args, true);
  window.clearTimeout = window.clearInterval = window.cancelAnimationFrame = window.cancelIdleCallback = remove;
  window.requestAnimationFrame = callback => add(callback, FRAME_MS, [], false, true);
  window.requestIdleCallback = callback => add(() => callback({didTimeout: false, timeRemaining: () => 10}), 1, []);

  function due(limit) {
    let first = null;
    for (const [id, timer] of timers)
      if (timer.at <= limit && (!first || timer.at < first[1].at || (timer.at === first[1].at && timer.order < first[1].order)))
        first = [id, timer];
    return first;
  }
  // Let tasks run that the page has posted without a timer, such as the start of a navigation.
  P.yield = () => new Promise(resolve => {
    const channel = new MessageChannel();
    channel.port1.onmessage = () => { channel.port1.close(); resolve(); };
    channel.port2.postMessage(0);
  });
  P.advance = async milliseconds => {
    const limit = now + milliseconds;
    let found;
    for (let count = 0; count < MAX_CALLBACKS && (found = due(limit)); count++) {
      const [id, timer] = found;
      now = Math.max(now, timer.at);
      if (timer.every) { timer.at = now + timer.every; timer.order = next++; } else timers.delete(id);
      try {
        if (typeof timer.callback === 'function') timer.callback.apply(window, timer.frame ? [now - loaded] : timer.args);
        else (0, eval)(String(timer.callback));
      } catch (error) { console.error(error); }
      await null; // promises of the callback are settled before the next timer
    }
    now = Math.max(now, limit);
  };
  // Count requests in progress, because the browser announces them to the observer some time after they were made.
  const MAX_WAIT_MS = 10000;
  let pending = 0, waiting = [];
  const finished = () => { if (--pending === 0) for (const resume of waiting.splice(0)) resume(); };
  const nativeFetch = window.fetch.bind(window);
  window.fetch = (...args) => {
    const reply = nativeFetch(...args);
    pending++;
    reply.then(response => response.clone().arrayBuffer()).then(finished, finished);
    return reply;
  };
  const nativeSend = XMLHttpRequest.prototype.send;
  XMLHttpRequest.prototype.send = function (...args) {
    const result = nativeSend.apply(this, args);
    if (this.readyState === 4) return result; // a synchronous request
    pending++;
    addListener.call(this, 'loadend', finished, {once: true});
    return result;
  };
  P.idle = async () => {
    const started = RealDate.now();
    while (pending && RealDate.now() - started < MAX_WAIT_MS) {
      await new Promise(resolve => { waiting.push(resolve); nativeTimeout(resolve, MAX_WAIT_MS); });
      await P.yield(); // the page's own handlers run first
    }
  };
  // Wait until the page and its scripts are loaded, because the browser may report the end of the previous page's loading
  // after the new page was requested.
  P.loaded = async () => {
    if (document.readyState === 'complete') return;
    await P.within(new Promise(resolve => { addListener.call(window, 'load', resolve, {once: true}); }), MAX_WAIT_MS);
    await P.yield(); // the page's own handlers run first
  };
  // Let the time of one turn pass, once, even if the page is observed several times because something was not ready.
  let lastTurn = 0;
  P.pass = async (turn, milliseconds) => {
    await P.loaded();
    P.renew();
    await P.idle();
    if (turn === lastTurn) return;
    lastTurn = turn;
    await P.advance(milliseconds);
    await P.yield();
    await P.idle();
  };
  // Wait for pictures, because the layout depends on their size.
  P.load = url => new Promise(resolve => {
    const image = new Image();
    addListener.call(image, 'load', resolve);
    addListener.call(image, 'error', resolve);
    nativeTimeout(resolve, 5000);
    image.src = url;
  });
  P.images = () => Promise.all([...document.images].filter(image => !image.complete && image.loading !== 'lazy')
    .map(image => new Promise(resolve => {
      addListener.call(image, 'load', resolve);
      addListener.call(image, 'error', resolve);
      nativeTimeout(resolve, 5000);
    })));
  P.within = (promise, milliseconds) => Promise.race([promise, new Promise(resolve => nativeTimeout(resolve, milliseconds))]);
  P.clearTimers = () => { timers = new Map(); now = loaded = EPOCH; };

  P.seed = seed => { // mulberry32
    let state = seed >>> 0;
    Math.random = () => {
      state = (state + 0x6D2B79F5) >>> 0;
      let t = Math.imul(state ^ (state >>> 15), 1 | state);
      t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
      return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
    };
  };
  P.seed(/*SEED*/ 0);

  // Remember which elements react to the mouse, since pages attach listeners to elements without a role.
  const REACTS = new Set(['click', 'mousedown', 'mouseup', 'dblclick', 'pointerdown', 'touchstart', 'dragstart']);
  const reacting = new WeakSet();
  const addListener = EventTarget.prototype.addEventListener;
  EventTarget.prototype.addEventListener = function (type, ...rest) {
    if (REACTS.has(type) && this instanceof Element) reacting.add(this);
    return addListener.call(this, type, ...rest);
  };
  P.reacts = element => reacting.has(element) || !!(element.onclick || element.onmousedown || element.onmouseup);

  // Whether the elements below the mouse are not in the state :hover yet, which the browser updates some time after the
  // layout has changed; the mouse is then moved to the same place again, which the page must not notice.
  P.staleHover = (x, y) => {
    const top = document.elementFromPoint(x, y);
    P.silent = !!top && (!top.matches(':hover') ||
      (!top.closest('label') && [...top.children].some(child => child.matches(':hover'))));
    return P.silent;
  };
  P.silent = false;
  for (const type of ['mousemove', 'pointermove', 'pointerrawupdate'])
    addListener.call(window, type, event => { if (P.silent) event.stopImmediatePropagation(); }, true);

  P.leaving = false; // whether the page has started to navigate
  addListener.call(window, 'beforeunload', () => { P.leaving = true; }, true);
  addListener.call(window, 'submit', event => { nativeTimeout(() => { if (!event.defaultPrevented) P.leaving = true; }, 0); }, true);

  P.opening = false; // whether the page has opened a tab
  const open = window.open.bind(window);
  window.open = (...args) => { P.opening = true; return open(...args); };
  addListener.call(window, 'click', event => {
    const link = event.target instanceof Element && event.target.closest('a[target], form[target]');
    if (link && !event.defaultPrevented && !['', '_self', '_top', '_parent'].includes(link.target)) P.opening = true;
  });

  const still = document.createElement('style');
  still.textContent = '*,*::before,*::after{transition:none!important;animation-duration:0s!important;' +
    'animation-delay:0s!important;scroll-behavior:auto!important;caret-color:transparent!important}';
  const insert = () => (document.head || document.documentElement).appendChild(still);
  if (document.documentElement) insert();
  else new MutationObserver((_, observer) => { if (document.documentElement) { observer.disconnect(); insert(); } })
    .observe(document, {childList: true});
  // The first page of a tab that another page has opened keeps the window of the empty tab, with its flags.
  let shown = document;
  P.renew = () => {
    if (document === shown) return;
    shown = document;
    P.leaving = false;
    insert();
  };
})();
