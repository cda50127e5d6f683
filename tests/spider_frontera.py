"""Frontera's own manager drives the backend in python/, against a node.

Arguments: the folder of the package, the door of the node. Prints JSON: what it was given, in order.
"""

import json
import sys

package, door = sys.argv[1:]
sys.path.insert(0, package)

from frontera.core.manager import FrontierManager  # noqa: E402
from frontera.core.models import Request, Response  # noqa: E402
from frontera.settings import Settings  # noqa: E402

settings = Settings(attributes={"BACKEND": "orbweaver_spiders.frontera.Backend", "ORBWEAVER_NODES": [door]})
manager = FrontierManager.from_settings(settings)
manager.add_seeds([Request("http://frontera.example/")])
(seed,) = manager.get_next_requests(1)
response = Response(seed.url, request=seed)
manager.page_crawled(response)
low, high = Request("http://frontera.example/low"), Request("http://frontera.example/high")
high.meta[b"scrapy_meta"] = {"score": 0.9}
manager.links_extracted(seed, [low, high])
given = manager.get_next_requests(10)
manager.request_error(given[0], "timeout")
manager.page_crawled(Response(given[1].url, request=given[1]))
manager.links_extracted(given[1], [])
assert not manager.finished
left = manager.get_next_requests(10)
manager.stop()
print(json.dumps({"seed": seed.url, "given": [request.url for request in given], "left": [request.url for request in left]}))
