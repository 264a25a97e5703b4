"""The families of an index, one module for each: how its keys are made, its rows written, merged
and read.
"""
