"""A client of the URL Frontier API as other people write one: made with grpcio-tools from our proto file.

frontier_client.py PROTO_FOLDER SERVER TAG NODES...   makes every call of the API in a crawl named by TAG, against a server that must name so many nodes as one of
NODES. Prints what it saw as JSON; whatever is not as promised ends it with an error.
"""

import importlib
import json
import sys
import tempfile
import time

import grpc
from grpc_tools import protoc

folder, server, crawl, *node_counts = sys.argv[1:]
made = tempfile.mkdtemp()
ended = protoc.main(["", f"-I{folder}", f"--python_out={made}", f"--grpc_python_out={made}", "urlfrontier.proto"])
assert ended == 0, "the proto file is not understood"
sys.path.insert(0, made)
api = importlib.import_module("urlfrontier_pb2")
calls = importlib.import_module("urlfrontier_pb2_grpc")

names = [method.name for method in api.DESCRIPTOR.services_by_name["URLFrontier"].methods]
assert len(names) == 19, names
made_calls = set()


class Counted:
    """The stub, which notes the calls that were made."""

    def __init__(self, stub):
        self.stub = stub

    def __getattr__(self, name):
        made_calls.add(name)
        return getattr(self.stub, name)


stub = Counted(calls.URLFrontierStub(grpc.insecure_channel(server)))


def found(number, **more):
    info = api.URLInfo(url=f"http://p{number % 5}.example/{number}", crawlID=crawl, **more)
    return api.URLItem(discovered=api.DiscoveredURLItem(info=info), ID=f"id{number}")


def known(info, date):
    return api.URLItem(known=api.KnownURLItem(info=info, refetchable_from_date=date))


acks = {ack.ID: ack.status for ack in stub.PutURLs(iter([found(number) for number in range(50)]))}
assert acks == {f"id{number}": api.AckMessage.OK for number in range(50)}, acks
again = [ack.status for ack in stub.PutURLs(iter([found(1)]))]
assert again == [api.AckMessage.SKIPPED], again
batch = api.DiscoveredBatch(ID="b", items=[found(number).discovered.info for number in (3, 60)])
(answer,) = stub.PutDiscovered(iter([batch]))
assert (answer.ID, list(answer.statuses)) == ("b", [api.AckMessage.SKIPPED, api.AckMessage.OK]), answer

stub.SetDelay(api.QueueDelayParams(delay_requestable=0))
taken, until = [], time.time() + 120
while len(taken) < 51 and time.time() < until:
    params = api.GetParams(max_queues=2, max_urls_per_queue=0, delay_requestable=600, crawlID=crawl)
    taken += list(stub.GetURLs(params))
assert len({info.url for info in taken}) == len(taken) == 51, len(taken)
assert all(info.key == info.url.split("/")[2] and info.crawlID == crawl for info in taken)

first = taken[0]
first.metadata["depth"].values.append("3")
assert [ack.status for ack in stub.PutURLs(iter([known(first, 2_000_000_000)]))] == [api.AckMessage.OK]
status = stub.GetURLStatus(api.URLStatusRequest(url=first.url, crawlID=crawl))
assert status.known.info == first and status.known.refetchable_from_date == 2_000_000_000, status
assert abs(status.creation_date - time.time()) < 600, status.creation_date
assert [ack.status for ack in stub.PutURLs(iter([known(taken[1], 0)]))] == [api.AckMessage.OK]

stats = stub.GetStats(api.QueueWithinCrawlParams(crawlID=crawl))
assert (stats.size, stats.inProcess, stats.numberOfQueues) == (50, 49, 5), stats
assert dict(stats.counts) == {"completed": 1, "active_queues": 5}, stats
assert len(list(stub.ListURLs(api.ListUrlParams(crawlID=crawl, size=1000)))) == 51
assert stub.CountURLs(api.CountUrlParams(crawlID=crawl, filter="P0.", ignoreCase=True)).value == 11
queues = stub.ListQueues(api.Pagination(crawlID=crawl, size=2))
assert (len(queues.values), queues.total, queues.size) == (2, 5, 2), queues
assert crawl in stub.ListCrawls(api.Local()).values
# Who is paused hands nothing out, and says that it is.
stub.SetActive(api.Active(state=False))
assert not stub.GetActive(api.Local()).state
assert list(stub.GetURLs(api.GetParams(crawlID=crawl))) == []
stub.SetActive(api.Active(state=True))
assert stub.GetActive(api.Local()).state
stub.SetLogLevel(api.LogLevelParams(package="node::doors", level=api.LogLevelParams.WARN))
stub.BlockQueueUntil(api.BlockQueueParams(key="p1.example", time=2_000_000_000, crawlID=crawl))
stub.SetCrawlLimit(api.CrawlLimitParams(key="p1.example", limit=9, crawlID=crawl))
try:
    stub.SetCrawlLimit(api.CrawlLimitParams(key="nobody", limit=9, crawlID=crawl))
    raise AssertionError("a limit on nothing")
except grpc.RpcError as error:
    assert error.code() == grpc.StatusCode.UNKNOWN, error
try:
    stub.GetURLStatus(api.URLStatusRequest(url="http://nowhere.example/", crawlID=crawl))
    raise AssertionError("nothing is known of nothing")
except grpc.RpcError as error:
    assert error.code() == grpc.StatusCode.NOT_FOUND, error
assert stub.DeleteQueue(api.QueueWithinCrawlParams(key="p2.example", crawlID=crawl)).value == 10
assert stub.PurgeURLs(api.PurgeUrlParams(crawlID=crawl, days=1)).value == 0
assert stub.DeleteCrawl(api.DeleteCrawlMessage(value=crawl)).value == 41
assert crawl not in stub.ListCrawls(api.Local()).values
nodes = len(stub.ListNodes(api.Empty()).values)
assert str(nodes) in node_counts, (nodes, node_counts)
missing = set(names) - made_calls
assert not missing, missing
print(json.dumps({"calls": len(made_calls), "taken": len(taken), "nodes": nodes}))
