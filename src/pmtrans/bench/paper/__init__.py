"""The numbers of the PMTrans paper (CVPR 2023) as data: every cell of its tables, errata marked."""

from pmtrans.bench.paper.numbers import PaperRow, Table, paper_result, paper_row, table, table_names

__all__ = ["PaperRow", "Table", "paper_result", "paper_row", "table", "table_names"]
