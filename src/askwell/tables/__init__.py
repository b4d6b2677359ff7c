"""The paper's tables and figures, made of the runs of a store."""

from askwell.tables.document import report_page
from askwell.tables.kept import KeptRun, kept_runs
from askwell.tables.paper import Paper, read_paper
from askwell.tables.study import StudyTable
from askwell.tables.study_of import Study, study_of
from askwell.tables.write_report import FORMATS, Format, write_report

__all__ = [
    "FORMATS",
    "Format",
    "KeptRun",
    "Paper",
    "Study",
    "StudyTable",
    "kept_runs",
    "read_paper",
    "report_page",
    "study_of",
    "write_report",
]
