"""The reference's C++ through the `pdqhash` package, and Pillow: `print FILE...` prints the hashes, `time STAGE TIMES
FILE...` the milliseconds of CPU that a stage takes for one file."""

import sys
import time

import numpy
import pdqhash
from PIL import Image


def decode(path):
    return numpy.asarray(Image.open(path).convert("RGB"))


def digits(pixels):
    bits, _ = pdqhash.compute(pixels)
    return f"{int(''.join(str(int(bit)) for bit in bits), 2):064x}"


if sys.argv[1] == "print":
    for path in sys.argv[2:]:
        print(digits(decode(path)))
else:
    stage, times, files = sys.argv[2], int(sys.argv[3]), sys.argv[4:]
    pixels = [decode(path) for path in files] if stage == "hash" else []
    work = {
        "both": lambda: [pdqhash.compute(decode(path)) for path in files],
        "decode": lambda: [decode(path) for path in files],
        "hash": lambda: [pdqhash.compute(picture) for picture in pixels],
    }[stage]
    work()
    began = time.process_time()
    for _ in range(times):
        work()
    print((time.process_time() - began) * 1000 / times / len(files))
