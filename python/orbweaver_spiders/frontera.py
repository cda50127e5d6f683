"""A backend as Frontera's managers drive it, over the door for spiders.

It does without Frontera, too: requests and responses are whatever the caller makes, with ``url`` and ``meta``.
"""

import logging

from .client import Client, Unavailable

try:
    # Managers take nothing else for a backend.
    from frontera.core.components import Backend as Interface
except ImportError:
    Interface = object

logger = logging.getLogger(__name__)


class Request:
    """A request for managers that bring no model of their own."""

    def __init__(self, url, meta=None):
        self.url = url
        self.meta = meta if meta is not None else {}


def _score(thing, default):
    meta = getattr(thing, "meta", None) or {}
    scrapy_meta = meta.get(b"scrapy_meta") or meta.get("scrapy_meta") or {}
    for words in (scrapy_meta, meta):
        for name in ("score", b"score"):
            if name in words:
                return float(words[name])
    return default


def _content_hash(response):
    meta = getattr(response, "meta", None) or {}
    scrapy_meta = meta.get(b"scrapy_meta") or meta.get("scrapy_meta") or {}
    return scrapy_meta.get("content_hash", meta.get("content_hash"))


class Backend(Interface):
    """Seeds, pages, links and errors go to the cluster, requests come from it."""

    component_name = "Orbweaver backend"

    def __init__(self, client=None, request_model=Request):
        self._client = client if client is not None else Client()
        self._model = request_model
        self._responses = {}  # pages whose links are not known yet

    @classmethod
    def from_manager(cls, manager):
        settings = manager.settings
        client = Client(
            nodes=settings.get("ORBWEAVER_NODES", "http://127.0.0.1:8000"),
            user=settings.get("ORBWEAVER_USER", None),
            password=settings.get("ORBWEAVER_PASSWORD", None),
            ca=settings.get("ORBWEAVER_CA", None),
        )
        return cls(client, getattr(manager, "request_model", Request))

    @property
    def queue(self):
        """The cluster's: nothing of it is here."""
        return None

    @property
    def metadata(self):
        """The cluster's, as the queue."""
        return None

    @property
    def states(self):
        """The cluster's, as the queue."""
        return None

    def frontier_start(self):
        pass

    def frontier_stop(self):
        for url, response in list(self._responses.items()):
            self._report(url, response, ())
        self._client.close()

    def add_seeds(self, seeds):
        self._client.seeds([(seed.url, _score(seed, 1.0)) for seed in seeds])

    def page_crawled(self, response, links=None):
        """Older managers bring the links along, newer ones afterwards."""
        if links is None:
            self._responses[response.url] = response
        else:
            self._report(response.url, response, links)

    def links_extracted(self, request, links):
        self._report(request.url, self._responses.get(request.url, request), links)

    def request_error(self, page, error):
        self._responses.pop(page.url, None)
        self._client.failed([page.url])

    def get_next_requests(self, max_next_requests=10, **_hints):
        try:
            urls = self._client.request(max_next_requests)
        except Unavailable as error:
            logger.warning("nothing to fetch: %s", error)
            return []
        return [self._model(url) for url in urls]

    def finished(self):
        return False

    def _report(self, url, response, links):
        self._responses.pop(url, None)
        links = [(link.url, _score(link, 0.5)) for link in links]
        self._client.crawled(url, links, _score(response, 0.0), _content_hash(response))
