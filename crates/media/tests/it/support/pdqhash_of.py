"""Reads pictures (width and height as 32 bits, little end first, then RGB) and prints the hash and quality of each
as the `pdqhash` package, which wraps the reference's C++, makes them."""

import struct
import sys

import numpy
import pdqhash

while header := sys.stdin.buffer.read(8):
    width, height = struct.unpack("<II", header)
    pixels = numpy.frombuffer(sys.stdin.buffer.read(width * height * 3), numpy.uint8).reshape(height, width, 3)
    bits, quality = pdqhash.compute(pixels)
    # The first bit of the vector is the highest of the text.
    print(f"{int(''.join(str(int(bit)) for bit in bits), 2):064x} {quality}")
