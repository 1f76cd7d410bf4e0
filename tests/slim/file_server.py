"""A real HTTP server on a free loopback port, with the faults of real ones."""

import contextlib
import http.server
import threading


class Site:
  """What the server has, and how it fails.

  Attributes:
    files: content by path, '/a.tar'.
    cuts: how many bytes of each of the next answers to send before closing the
      connection; then whole ones.
    errors: status codes of the next answers; then none.
    ranges: whether parts can be asked for.
    redirects: address by path.
    seen: (method, path, Range, Authorization) of each request.
  """

  def __init__(self):
    self.files = {}
    self.cuts = []
    self.errors = []
    self.ranges = True
    self.redirects = {}
    self.seen = []
    self.url = ''


class _Handler(http.server.BaseHTTPRequestHandler):
  protocol_version = 'HTTP/1.0'

  def log_message(self, *_):
    pass

  def do_HEAD(self):
    self._answer(send_body=False)

  def do_GET(self):
    self._answer(send_body=True)

  def _answer(self, send_body):
    site = self.server.site
    asked = self.headers.get('Range')
    site.seen.append(
      (self.command, self.path, asked, self.headers.get('Authorization'))
    )
    if site.errors and send_body:
      return self.send_error(site.errors.pop(0))
    if self.path in site.redirects:
      self.send_response(302)
      self.send_header('Location', site.redirects[self.path])
      return self.end_headers()
    if self.path not in site.files:
      return self.send_error(404)
    content = site.files[self.path]
    start = 0
    if asked and site.ranges:
      start = int(asked.removeprefix('bytes=').removesuffix('-'))
      if start >= len(content):
        self.send_response(416)
        self.send_header('Content-Range', f'bytes */{len(content)}')
        return self.end_headers()
      self.send_response(206)
      self.send_header(
        'Content-Range', f'bytes {start}-{len(content) - 1}/{len(content)}'
      )
    else:
      self.send_response(200)
    self.send_header('Content-Length', str(len(content) - start))
    self.end_headers()
    if send_body:
      end = start + site.cuts.pop(0) if site.cuts else None
      self.wfile.write(content[start:end])
    return None


@contextlib.contextmanager
def serving():
  """Yields a Site that is being served."""
  site = Site()
  with http.server.ThreadingHTTPServer(('127.0.0.1', 0), _Handler) as server:
    server.site = site
    site.url = f'http://127.0.0.1:{server.server_port}'
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
      yield site
    finally:
      server.shutdown()
      thread.join()
