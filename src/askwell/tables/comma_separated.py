"""A table's figures as CSV: a row for each figure, with all that it is a figure of."""

import csv
import io

from askwell.tables.study import FIELDS, StudyTable


def csv_table(study: StudyTable) -> str:
    """The figures with all their digits; an empty field is a figure that there is not."""
    written = io.StringIO()
    writer = csv.DictWriter(written, FIELDS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(study.records)
    return written.getvalue()
