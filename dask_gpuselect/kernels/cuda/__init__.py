"""Kernels for CuPy chunks, in CUDA C++; NVRTC compiles each by itself when it is first needed.

Every kernel reads a chunk once and in place, whatever its strides. Each step has a file of CUDA C++
and one for the host side:

::

    backend.py                 the kernels by purpose; other modules have the reference's names, or:
    elements.cuh, chunk.py     how a chunk is read, and how elements are ordered
    cells.py                   load 1: counts between pivots
    spans                      load 2: counts at the ends of brackets, and candidates
    candidates                 selection of the elements of some ranks among candidates
    measures, bitonic          probes of strategies: counts, distances, bins; a sorting network
    sampling                   arrays in memory: a sample, and the steps after it in one chain
    lanes, plain_lanes         lanes along some axes, with masks and without: many in one launch
    lane_passes, lane_reports  lanes that are read in parts; merging of their partial results
    lane_answers               answers from these partial results
    groups, labels             elements in groups, and the labels of the groups
    source.py, launch.py       text and sizes of the kernels; compiling and starting them
"""
