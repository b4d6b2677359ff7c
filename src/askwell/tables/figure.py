"""A figure of a report, as SVG and as PDF."""

from dataclasses import dataclass


@dataclass(frozen=True)
class StudyFigure:
    """A figure, what it is called in file names and in headings, and what stands below it."""

    name: str
    title: str
    caption: str
    svg: str
    pdf: bytes
