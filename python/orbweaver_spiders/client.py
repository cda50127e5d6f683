"""The door for spiders of an Orbweaver node, over HTTP."""

import base64
import http.client
import json
import ssl
import time
import urllib.parse


class Refused(Exception):
    """The door does not take what was sent: asking again does not help."""

    def __init__(self, status, reason):
        super().__init__(f"{status}: {reason}")
        self.status = status


class Unavailable(Exception):
    """No node answers, or none can at the moment."""


class Client:
    """Talks to any of several nodes: the next one when one does not answer.

    One connection is kept open. A client is for one thread.
    """

    def __init__(self, nodes="http://127.0.0.1:8000", user=None, password=None, ca=None, timeout=30.0, patience=60.0):
        """``nodes``: address of a node, or several; ``ca``: file with the certificate of nodes that sign their own;
        ``patience``: seconds for which a call is tried."""
        self._nodes = [nodes] if isinstance(nodes, str) else list(nodes)
        if not self._nodes:
            raise ValueError("no node is named")
        self._headers = {}
        if user is not None:
            pair = base64.b64encode(f"{user}:{password or ''}".encode()).decode()
            self._headers["Authorization"] = f"Basic {pair}"
        self._ca = ca
        self._timeout = timeout
        self._patience = patience
        self._connection = None

    def crawled(self, url, links=(), score=0.0, content_hash=None):
        """Reports a page. ``links``: URLs, or pairs of a URL and what the link is worth."""
        self.crawled_all([{"url": url, "links": links, "score": score, "content_hash": content_hash}])

    def crawled_all(self, pages):
        """Reports pages, each a dictionary as ``crawled`` takes its arguments."""
        self._post("/crawled", [_page(page) for page in pages])

    def seeds(self, urls, score=1.0):
        """Has these crawled, first of all."""
        self._post("/crawled", {"url": "_seed_0", "links": [_link(url, score) for url in urls]})

    def failed(self, urls):
        """Gives back pages that could not be fetched: they are tried again later, a few times."""
        self._post("/failed", [urls] if isinstance(urls, str) else list(urls))

    def request(self, n=10, lease=None):
        """Returns up to ``n`` URLs to fetch. What is not reported within the lease, in seconds, goes to others."""
        query = {"n": int(n)}
        if lease:
            query["lease"] = int(lease)
        return self._call("GET", "/request?" + urllib.parse.urlencode(query))

    def frequencies(self, pages):
        """Has pages crawled so often: pairs of a URL and visits a second; 0 takes that back."""
        return self._post("/frequencies", [[url, hz] for url, hz in pages])["known"]

    def reload(self):
        """Puts up again what was never crawled and was given up; returns how many pages."""
        return self._post("/reload", None)["reloaded"]

    def stats(self):
        """Returns counts of pages and domains."""
        return self._call("GET", "/stats")

    def close(self):
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _post(self, path, body):
        return self._call("POST", path, json.dumps(body).encode())

    def _call(self, method, path, body=None):
        until = time.monotonic() + self._patience
        pause = 0.1
        while True:
            try:
                return self._try(method, path, body)
            except (OSError, http.client.HTTPException, Unavailable) as error:
                self.close()
                # The next one has the next try.
                self._nodes.append(self._nodes.pop(0))
                if time.monotonic() + pause > until:
                    raise Unavailable(f"no node answers: {error}") from error
                time.sleep(pause)
                pause = min(pause * 2, 2.0)

    def _try(self, method, path, body):
        if self._connection is None:
            self._connection = self._connect(self._nodes[0])
        headers = dict(self._headers)
        if body is not None:
            headers["Content-Type"] = "application/json"
        self._connection.request(method, path, body, headers)
        answer = self._connection.getresponse()
        text = answer.read()
        if answer.status == 503:
            raise Unavailable(text.decode(errors="replace"))
        if answer.status >= 400:
            raise Refused(answer.status, text.decode(errors="replace"))
        return json.loads(text) if text else None

    def _connect(self, node):
        parts = urllib.parse.urlsplit(node)
        if parts.scheme == "https":
            context = ssl.create_default_context(cafile=self._ca)
            return http.client.HTTPSConnection(parts.hostname, parts.port, timeout=self._timeout, context=context)
        if parts.scheme == "http":
            return http.client.HTTPConnection(parts.hostname, parts.port, timeout=self._timeout)
        raise ValueError(f"{node} is no address of a node, as http://127.0.0.1:8000 is")


def _link(link, score):
    if isinstance(link, str):
        return [link, score]
    url, own = link
    return [url, float(own)]


def _page(page):
    links = [_link(link, 0.5) for link in page.get("links") or ()]
    told = {"url": page["url"], "score": float(page.get("score") or 0.0), "links": links}
    if page.get("content_hash") is not None:
        told["content_hash"] = int(page["content_hash"]) & 0xFFFFFFFFFFFFFFFF
    return told
