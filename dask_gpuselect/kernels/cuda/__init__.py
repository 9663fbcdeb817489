"""CuPy chunks: kernels in CUDA C++, compiled by NVRTC when needed, each by itself.

Every kernel reads a chunk once and in place, whatever its strides. Each step has a file of CUDA C++
and one for the host side:

::

    backend.py                 the kernels by purpose; other modules have the reference's names, or:
    elements.cuh, chunk.py     how a chunk is read, and elements are ordered
    cells, buckets.py          load 1: counts and sums between pivots
    spans                      load 2: counts at the ends of brackets, and candidates
    candidates                 from candidates to the elements of some ranks
    measures, bitonic          what strategies ask: counts, distances, bins; a network that sorts
    sampling                   arrays in memory: a sample, and the steps after it in one chain
    lanes, plain_lanes         along some of the axes, with masks and without: many lanes at once
    lane_passes, lane_reports  lanes that are taken in parts; what the reports of parts say together
    lane_answers               what they answer
    groups, labels             elements that are in groups, and the labels that say in which
    source.py, launch.py       the kernels' text and sizes; compiling and starting them
"""
