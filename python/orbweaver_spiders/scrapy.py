"""A scheduler and a spider middleware for Scrapy.

The scheduler asks the cluster what to fetch; the middleware reports what was crawled and which links were found. Requests
that are more than a URL stay with the spider that made them and are fetched before the others.
"""

import hashlib
import logging
import time
from collections import deque

from .client import Client, Unavailable

logger = logging.getLogger(__name__)

#: What a link is worth if nobody says so.
LINK_SCORE = 0.5
#: Seconds after which an answer without pages is asked for again.
POLL_S = 0.5


def _client(settings):
    return Client(
        nodes=settings.getlist("ORBWEAVER_NODES", ["http://127.0.0.1:8000"]),
        user=settings.get("ORBWEAVER_USER"),
        password=settings.get("ORBWEAVER_PASSWORD"),
        ca=settings.get("ORBWEAVER_CA"),
    )


def _is_plain(request, spider):
    """Whether a request is no more than its URL."""
    meta = request.meta
    if meta.get("orbweaver") is False or "orbweaver_url" in meta:
        return False
    callback = request.callback
    default = callback is None or callback == getattr(spider, "parse", None)
    return request.method == "GET" and not request.body and default


class Scheduler:
    """Hands to Scrapy what the cluster hands out."""

    def __init__(self, crawler):
        settings = crawler.settings
        self._crawler = crawler
        self._client = _client(settings)
        self._batch = settings.getint("ORBWEAVER_BATCH", 10)
        self._lease_s = settings.getint("ORBWEAVER_LEASE_S", 0)
        self._idle_s = settings.getfloat("ORBWEAVER_IDLE_S", 10.0)
        self._own = deque()  # requests that only this spider can make
        self._seeds = []  # plain requests of the spider itself
        self._given = deque()  # URLs from the cluster
        self._asked = 0.0
        self._busy = time.monotonic()

    @classmethod
    def from_crawler(cls, crawler):
        return cls(crawler)

    def open(self, spider):
        self._spider = spider
        self._busy = time.monotonic()

    def close(self, reason):
        self._send_seeds()
        # What was not begun need not wait for the end of its lease.
        if self._given:
            logger.info("%d pages that were taken and not fetched are left to others", len(self._given))
        self._client.close()

    def has_pending_requests(self):
        if self._own or self._given or self._seeds:
            return True
        return self._idle_s == 0 or time.monotonic() - self._busy < self._idle_s

    def enqueue_request(self, request):
        self._busy = time.monotonic()
        if _is_plain(request, self._spider):
            self._seeds.append((request.url, float(request.meta.get("orbweaver_score", 1.0))))
        else:
            self._own.append(request)
        return True

    def next_request(self):
        if self._own:
            return self._own.popleft()
        self._send_seeds()
        if not self._given:
            self._ask()
        if not self._given:
            return None
        from scrapy import Request

        url = self._given.popleft()
        self._busy = time.monotonic()
        return Request(url, errback=self._failed, dont_filter=True, meta={"orbweaver_url": url})

    def _send_seeds(self):
        seeds, self._seeds = self._seeds, []
        try:
            if seeds:
                self._client.seeds(seeds)
                self._asked = 0.0
        except Unavailable as error:
            logger.warning("seeds wait: %s", error)
            self._seeds = seeds + self._seeds

    def _ask(self):
        now = time.monotonic()
        if now - self._asked < POLL_S:
            return
        try:
            self._given.extend(self._client.request(self._batch, self._lease_s))
        except Unavailable as error:
            logger.warning("nothing to fetch: %s", error)
        self._asked = 0.0 if self._given else now
        stats = self._crawler.stats
        if stats is not None:
            stats.inc_value("orbweaver/requests", len(self._given))

    def _failed(self, failure):
        """Scrapy could not fetch a page, or did not let the spider see it."""
        request = getattr(failure, "request", None)
        if request is None:
            response = getattr(failure.value, "response", None)
            request = getattr(response, "request", None)
        url = request.meta.get("orbweaver_url") if request is not None else None
        if url is None:
            return
        self._busy = time.monotonic()
        # Scrapy goes on with what an errback makes of a page as if the spider had made it.
        request.meta["orbweaver_failed"] = True
        try:
            self._client.failed([url])
            if self._crawler.stats is not None:
                self._crawler.stats.inc_value("orbweaver/failed")
        except Unavailable as error:
            logger.warning("%s is not given back: %s; it comes back when its lease is over", url, error)


class Reporter:
    """Reports pages and their links, and keeps plain requests from being scheduled here."""

    def __init__(self, crawler):
        self._client = _client(crawler.settings)
        self._stats = crawler.stats
        self._crawler = crawler

    @classmethod
    def from_crawler(cls, crawler):
        return cls(crawler)

    async def process_spider_output_async(self, response, result, spider=None):
        links = []
        try:
            async for thing in result:
                if not self._is_link(thing, links):
                    yield thing
        except Exception:
            self._give_back(response)
            raise
        self._report(response, links)

    def process_spider_output(self, response, result, spider=None):
        links = []
        try:
            for thing in result:
                if not self._is_link(thing, links):
                    yield thing
        except Exception:
            self._give_back(response)
            raise
        self._report(response, links)

    def _is_link(self, thing, links):
        from scrapy import Request

        if isinstance(thing, Request) and _is_plain(thing, self._crawler.spider):
            links.append((thing.url, float(thing.meta.get("orbweaver_score", LINK_SCORE))))
            return True
        return False

    def _give_back(self, response):
        """The spider failed at a page: it is tried again, a few times."""
        url = response.meta.get("orbweaver_url")
        try:
            if url is not None:
                self._client.failed([url])
        except Unavailable as error:
            logger.warning("%s is not given back: %s; it comes back when its lease is over", url, error)

    def _report(self, response, links):
        meta = response.meta
        if meta.get("orbweaver_failed"):
            return
        url = meta.get("orbweaver_url", response.url)
        digest = hashlib.blake2b(response.body, digest_size=8).digest()
        score = float(meta.get("orbweaver_score", 0.0))
        try:
            self._client.crawled(url, links, score, int.from_bytes(digest, "big"))
            if self._stats is not None:
                self._stats.inc_value("orbweaver/crawled")
        except Unavailable as error:
            logger.warning("%s is not reported: %s; it comes back when its lease is over", url, error)
