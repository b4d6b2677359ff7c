"""From a matplotlib figure to a PDF without dates, the same for the same figure."""

import io

import matplotlib
from matplotlib.figure import Figure

_NO_METADATA = {"Creator": None, "Producer": None, "CreationDate": None}


def pdf_of(figure: Figure) -> bytes:
    """The figure as PDF, with its letters as text that can be searched and copied."""
    written = io.BytesIO()
    with matplotlib.rc_context({"pdf.fonttype": 42}):
        figure.savefig(written, format="pdf", metadata=_NO_METADATA)
    return written.getvalue()
