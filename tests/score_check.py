"""Computes PageRank and HITS of a graph with networkx and says how far other numbers are from them.

usage: score_check.py PAGES LINKS SCORES
LINKS has a line "from to" for each link, SCORES one JSON object with the lists pagerank, authorities and hubs.
Prints a JSON object with the distance (L1) of each.
"""
import json
import sys

import networkx

pages = int(sys.argv[1])
graph = networkx.DiGraph()
graph.add_nodes_from(range(pages))
with open(sys.argv[2]) as links:
    graph.add_edges_from(tuple(map(int, line.split())) for line in links)
with open(sys.argv[3]) as scores:
    ours = json.load(scores)


def distance(numbers, other):
    return sum(abs(numbers[page] - other[page]) for page in range(pages))


pagerank = networkx.pagerank(graph, alpha=0.85, tol=1e-12, max_iter=1000)
hubs, authorities = networkx.hits(graph, max_iter=10000, tol=1e-12)
print(json.dumps({
    "links": graph.number_of_edges(),
    "pagerank": distance(ours["pagerank"], pagerank),
    "authorities": distance(ours["authorities"], authorities),
    "hubs": distance(ours["hubs"], hubs),
}))
