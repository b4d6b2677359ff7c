"""Reports: tables, charts and sentences as one HTML page that needs no other file."""

from askwell.report.charts.curves import Curve, CurvePoint, curves_chart
from askwell.report.charts.gaps import Gap, gaps_chart
from askwell.report.charts.reliability import reliability_chart, reliability_pdf
from askwell.report.charts.risk_coverage import risk_coverage_chart, risk_coverage_pdf
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
    "reliability_chart",
    "reliability_pdf",
    "render_page",
    "risk_coverage_chart",
    "risk_coverage_pdf",
]
