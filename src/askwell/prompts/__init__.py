"""Prompts as text: templates and where they come from."""

from askwell.prompts.read import read_prompts
from askwell.prompts.template import Template, parse_template

__all__ = ["Template", "parse_template", "read_prompts"]
