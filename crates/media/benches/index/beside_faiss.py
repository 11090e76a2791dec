"""Answers the queries that `cargo bench -p tidegate-media --bench index -- SIZES QUERIES FOLDER` wrote, with FAISS.

python crates/media/benches/index/beside_faiss.py FOLDER SIZES    (needs faiss-cpu and numpy)

One thread; CPU time of the process. A flat index says what there is to find, and how much of it the other one finds.
"""

import resource
import sys
import time
from pathlib import Path

import faiss
import numpy as np

RADIUS = 31


def cpu():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def resident():
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) * 1024
    return 0


def looked_up(index, queries):
    began = cpu()
    # FAISS finds what is nearer than the radius, not what is as near.
    limits, _, found = index.range_search(queries, RADIUS + 1)
    pairs = {(query, int(entry)) for query in range(len(queries)) for entry in found[limits[query] : limits[query + 1]]}
    return len(queries) / (cpu() - began), pairs


def multi_hash(hashes, flips):
    index = faiss.IndexBinaryMultiHash(256, 16, 16)
    index.nflip = flips
    before, began = resident(), time.monotonic()
    index.add(hashes)
    return index, resident() - before, time.monotonic() - began


def main():
    folder, sizes = Path(sys.argv[1]), [int(size) for size in sys.argv[2].split(",")]
    faiss.omp_set_num_threads(1)
    print("| entries | index | queries | look-ups/s of a core | found | recall | B an entry | build s |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for size in sizes:
        hashes = np.fromfile(folder / f"{size}.hashes", dtype=np.uint8).reshape(-1, 32)
        queries = np.fromfile(folder / f"{size}.queries", dtype=np.uint8).reshape(-1, 32)
        queries = queries[: max(50, min(len(queries), 200_000_000 // size))]
        flat = faiss.IndexBinaryFlat(256)
        flat.add(hashes)
        rate, there = looked_up(flat, queries)
        print(f"| {size} | Flat | {len(queries)} | {rate:.0f} | {len(there)} | 1 | 32 | |", flush=True)
        del flat
        for flips in (1, 0):
            index, grown, seconds = multi_hash(hashes, flips)
            rate, found = looked_up(index, queries)
            recall = len(found & there) / max(1, len(there))
            name = f"MultiHash 16 x 16, nflip {flips}"
            row = [size, name, len(queries), f"{rate:.0f}", len(found), f"{recall:.6f}", f"{grown / size:.0f}"]
            print("|", " | ".join(map(str, row)), f"| {seconds:.2f} |", flush=True)
            del index


if __name__ == "__main__":
    main()
