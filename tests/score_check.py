"""Computes PageRank and HITS of a graph with networkx and scipy and says how far other numbers are from them.

usage: score_check.py PAGES LINKS CONTENT SCORES
LINKS has a line "from to other" for each link, where other is 1 if it leads to another domain; CONTENT has what each page is worth by itself, a line each.
SCORES is one JSON object: by a name ("all", "content", "other"), the lists pagerank, authorities and hubs; "content" goes by all links and CONTENT, "other" by links between domains and CONTENT.
Prints a JSON object with the distance (L1) of each.
"""
import json
import sys

import networkx
import numpy
import scipy.sparse

pages = int(sys.argv[1])
with open(sys.argv[2]) as file:
    links = [tuple(map(int, line.split())) for line in file]
with open(sys.argv[3]) as file:
    content = numpy.array([float(line) for line in file])
with open(sys.argv[4]) as file:
    ours = json.load(file)


def distance(numbers, other):
    return float(numpy.abs(numpy.array(numbers) - numpy.array([other[page] for page in range(pages)])).sum())


def graph_of(edges):
    graph = networkx.DiGraph()
    graph.add_nodes_from(range(pages))
    graph.add_edges_from(edges)
    return graph


def weighted_hits(edges):
    """networkx knows no contents: what an authority gives to its hubs is weighed by them."""
    ends = numpy.array(edges)
    matrix = scipy.sparse.csr_array((numpy.ones(len(edges)), (ends[:, 0], ends[:, 1])), shape=(pages, pages))
    authorities = numpy.full(pages, 1 / pages)
    for _ in range(20000):
        hubs = matrix @ (authorities * content)
        hubs /= hubs.sum()
        before, authorities = authorities, matrix.T @ hubs
        authorities /= authorities.sum()
        if numpy.abs(authorities - before).sum() < 1e-13:
            break
    return hubs, authorities


everything = [(source, to) for source, to, _ in links]
between = [(source, to) for source, to, other in links if other]
told = {"links": len(everything), "between": len(between)}
for name, edges, weighted in [("all", everything, False), ("content", everything, True), ("other", between, True)]:
    graph = graph_of(edges)
    personal = dict(enumerate(content)) if weighted else None
    pagerank = networkx.pagerank(graph, alpha=0.85, tol=1e-12, max_iter=1000, personalization=personal)
    hubs, authorities = weighted_hits(edges) if weighted else networkx.hits(graph, max_iter=10000, tol=1e-12)
    told[name] = {
        "pagerank": distance(ours[name]["pagerank"], pagerank),
        "authorities": distance(ours[name]["authorities"], authorities),
        "hubs": distance(ours[name]["hubs"], hubs),
    }
print(json.dumps(told))
