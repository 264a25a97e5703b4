"""Merging companions: sorted tables of a family into one."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from headrace.formats.companion import Family
from headrace.search.families.postings import merge_postings
from headrace.search.families.rollup import merge_rollups
from headrace.search.families.typed import merge_typed


def merge_tables(family: Family, tables: Sequence[pa.Table]) -> pa.Table:
    """One sorted table. No record of a log is in two of them."""
    if len(tables) == 1:
        return tables[0]
    table = pa.concat_tables(tables).combine_chunks()
    match family:
        case Family.TYPED:
            return merge_typed(table)
        case Family.ROLL:
            return merge_rollups(table)
        case _:
            return merge_postings(family, table)
