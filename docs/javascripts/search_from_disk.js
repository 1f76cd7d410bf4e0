// Lets the search work in pages that were opened from disk. There a browser
// starts no worker, so the worker's script runs in a hidden frame instead.
'use strict';
if (location.protocol === 'file:') {
  class IFrameWorker extends EventTarget {
    constructor(address) {
      super();
      const frame = document.createElement('iframe');
      const script = document.createElement('script');
      this.inside = new Promise(resolve => {
        script.addEventListener('load', () => resolve(frame.contentWindow));
      });
      frame.hidden = true;
      document.documentElement.append(frame);
      const inside = frame.contentWindow;
      // The worker's answer; in a frame this would send to the frame itself.
      inside.postMessage = data => this.dispatchEvent(
        new MessageEvent('message', {data}));
      inside.importScripts = (...addresses) => addresses.reduce(
        (before, each) => before.then(() => load(inside, each)),
        Promise.resolve());
      script.src = address;
      inside.document.head.append(script);
    }

    postMessage(data) {
      this.inside.then(inside => inside.dispatchEvent(
        new inside.MessageEvent('message', {data})));
    }

    terminate() {}
  }

  const load = (inside, address) => new Promise((resolve, reject) => {
    const script = inside.document.createElement('script');
    Object.assign(script, {src: address, onload: resolve, onerror: reject});
    inside.document.head.append(script);
  });

  window.IFrameWorker = window.Worker = IFrameWorker;
}
