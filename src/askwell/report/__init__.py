"""Reports: tables, charts and sentences as one HTML page that needs no other file."""

from askwell.report.charts.curves import Curve, CurvePoint, curves_chart
from askwell.report.charts.gaps import Gap, gaps_chart
from askwell.report.page import Code, Drawing, FigureBlock, Key, Page, Paragraph, Points, Section, render_page
from askwell.report.table import Cell, Column, ColumnGroup, Row, Table

__all__ = [
    "Cell",
    "Code",
    "Column",
    "ColumnGroup",
    "Curve",
    "CurvePoint",
    "Drawing",
    "FigureBlock",
    "Gap",
    "Key",
    "Page",
    "Paragraph",
    "Points",
    "Row",
    "Section",
    "Table",
    "curves_chart",
    "gaps_chart",
    "render_page",
]
