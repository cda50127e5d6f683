#!/usr/bin/env python3
"""Checks every *.warc.gz of a folder with warcio, the archives' own reader, and by hand where warcio looks away.

    warc_check.py FOLDER

By hand: each gzip member is one whole WARC 1.1 record and nothing else, its block digest is present and right (warcio
skips revisits), record ids are unique, a segment opens with `warcinfo`, `WARC-Concurrent-To` names a record of the file.
By warcio: HTTP heads parse, block and payload digests of all it checks are right, and it sees the same records.
Prints counts as JSON; exits with 1 if anything is wrong, with 2 if there is nothing to check.
"""

import base64
import collections
import hashlib
import json
import pathlib
import sys
import zlib

from warcio.archiveiterator import ArchiveIterator

CHUNK_BYTES = 1 << 20


def members(path):
    """Yields offset and content of each gzip member; raises ValueError where the file is not one member after another."""
    with path.open("rb") as file:
        offset, rest = 0, b""
        while True:
            rest = rest or file.read(CHUNK_BYTES)
            if not rest:
                return
            inflate, content, taken = zlib.decompressobj(wbits=31), [], 0
            try:
                while True:
                    content.append(inflate.decompress(rest))
                    taken += len(rest) - len(inflate.unused_data)
                    if inflate.eof:
                        break
                    rest = file.read(CHUNK_BYTES)
                    if not rest:
                        raise ValueError(f"torn member at {offset}")
            except zlib.error as error:
                raise ValueError(f"member at {offset}: {error}") from error
            yield offset, b"".join(content)
            offset, rest = offset + taken, inflate.unused_data


def parse(content):
    """Returns headers and block of the one record in a member."""
    head, separator, rest = content.partition(b"\r\n\r\n")
    lines = head.decode("utf-8").split("\r\n")
    if not separator or lines[0] != "WARC/1.1":
        raise ValueError("not a WARC 1.1 record")
    headers = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if not colon or name.lower() in headers:
            raise ValueError(f"bad or repeated header line {line!r}")
        headers[name.lower()] = value.strip()
    length = int(headers["content-length"])
    if rest[length:] != b"\r\n\r\n":
        raise ValueError("the member is not exactly one record")
    return headers, rest[:length]


def sha1(data):
    return "sha1:" + base64.b32encode(hashlib.sha1(data).digest()).decode()


def check_by_hand(path, counts, types):
    """Returns the offsets of the records."""
    offsets, ids = [], set()
    for offset, content in members(path):
        try:
            headers, block = parse(content)
            kind = headers["warc-type"]
            if (kind == "warcinfo") != (not offsets):
                raise ValueError("a segment opens with its one warcinfo record")
            if headers["warc-block-digest"] != sha1(block):
                raise ValueError("block digest is wrong")
            if kind in ("response", "revisit") and "warc-payload-digest" not in headers:
                raise ValueError("no payload digest")
            if kind == "response":
                counts["payload_digests"] += 1
                if headers["warc-payload-digest"] != sha1(block.partition(b"\r\n\r\n")[2]):
                    raise ValueError("payload digest is wrong")
            if headers["warc-record-id"] in ids:
                raise ValueError("record id is not unique")
            if "warc-concurrent-to" in headers and headers["warc-concurrent-to"] not in ids:
                raise ValueError("WARC-Concurrent-To names no earlier record")
        except (KeyError, ValueError) as error:
            raise ValueError(f"record at {offset}: {error!r}") from error
        ids.add(headers["warc-record-id"])
        offsets.append(offset)
        types[kind] += 1
        counts["records"] += 1
        counts["block_digests"] += 1
    return offsets


def check_by_warcio(path, offsets):
    seen = []
    with path.open("rb") as file:
        records = ArchiveIterator(file, verify_http=True, check_digests=True)
        for record in records:
            while record.raw_stream.read(CHUNK_BYTES):
                pass
            if record.digest_checker.passed is False:
                raise ValueError(f"warcio: record at {records.get_record_offset()}: {record.digest_checker.problems}")
            if record.rec_type in ("response", "request") and record.http_headers is None:
                raise ValueError(f"warcio: record at {records.get_record_offset()}: no HTTP head")
            seen.append(records.get_record_offset())
        if records.err_count:
            raise ValueError(f"warcio: {records.err_count} records not followed by empty lines")
    if seen != offsets:
        raise ValueError(f"warcio sees {len(seen)} records, there are {len(offsets)}")


def main(folder):
    counts, types, errors = collections.Counter(), collections.Counter(), []
    for path in sorted(pathlib.Path(folder).glob("*.warc.gz")):
        counts["files"] += 1
        counts["bytes"] += path.stat().st_size
        try:
            check_by_warcio(path, check_by_hand(path, counts, types))
        except Exception as error:  # whatever it is, the file is not sound
            errors.append(f"{path.name}: {error}")
    names = ["files", "bytes", "records", "block_digests", "payload_digests"]
    print(json.dumps({**{name: counts[name] for name in names}, "types": dict(sorted(types.items())), "errors": errors}))
    if not counts["files"]:
        return 2
    return 1 if errors else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
