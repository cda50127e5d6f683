"""A real Scrapy crawls the synthetic web by what a node tells it, through the package in python/; then the Frontera-style backend does the same in small.

Arguments: the folder where the package is installed, doors of nodes (with commas between them; the first of them are closed), seeds. Prints JSON: what Scrapy counted and every URL that it saw.
"""

import json
import sys

package, doors, *seeds = sys.argv[1:]
doors = doors.split(",")
sys.path.insert(0, package)

import scrapy  # noqa: E402
from scrapy.crawler import CrawlerProcess  # noqa: E402
from scrapy.linkextractors import LinkExtractor  # noqa: E402

from orbweaver_spiders import Client, Refused  # noqa: E402
from orbweaver_spiders.frontera import Backend, Request  # noqa: E402

seen = []


class Everything(scrapy.Spider):
    name = "everything"
    start_urls = seeds

    def parse(self, response):
        seen.append(response.url)
        if isinstance(response, scrapy.http.TextResponse):
            for link in LinkExtractor().extract_links(response):
                yield scrapy.Request(link.url)


process = CrawlerProcess(
    {
        "SCHEDULER": "orbweaver_spiders.scrapy.Scheduler",
        "SPIDER_MIDDLEWARES": {"orbweaver_spiders.scrapy.Reporter": 1},
        "ORBWEAVER_NODES": doors,
        "ORBWEAVER_BATCH": 20,
        "ORBWEAVER_IDLE_S": 3,
        "ROBOTSTXT_OBEY": True,
        "CONCURRENT_REQUESTS": 16,
        "CONCURRENT_REQUESTS_PER_DOMAIN": 16,
        "DOWNLOAD_DELAY": 0,
        "DOWNLOAD_TIMEOUT": 5,
        "RETRY_ENABLED": False,
        "LOG_LEVEL": "WARNING",
        "TELNETCONSOLE_ENABLED": False,
    }
)
crawler = process.create_crawler(Everything)
process.crawl(crawler)
process.start()
counted = crawler.stats.get_stats()

client = Client(doors)
stats = client.stats()

# The backend that Frontera's managers drive, without Frontera.
backend = Backend(client)
backend.frontier_start()
backend.add_seeds([Request("http://frontera.example/")])
(first,) = backend.get_next_requests(1)
assert first.url == "http://frontera.example/", first.url
backend.page_crawled(first)
backend.links_extracted(first, [Request("http://frontera.example/a"), Request("http://frontera.example/b", {"scrapy_meta": {"score": 0.9}})])
best, other = backend.get_next_requests(10)
assert (best.url, other.url) == ("http://frontera.example/b", "http://frontera.example/a"), "the better link first"
backend.request_error(best, "timeout")
backend.page_crawled(other, [])
assert backend.get_next_requests(10) == []
backend.frontier_stop()

try:
    client.crawled("not a URL")
    raise AssertionError("that was no URL")
except Refused as error:
    assert error.status == 400 and "CrawledPage" in str(error), error

print(
    json.dumps(
        {
            "seen": sorted(seen),
            "crawled": counted.get("orbweaver/crawled", 0),
            "failed": counted.get("orbweaver/failed", 0),
            "reason": counted.get("finish_reason"),
            "stats": stats,
        }
    )
)
