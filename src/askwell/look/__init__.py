"""Looking at soft prompts: the words that are nearest to their vectors, as text, drawing, page and data."""

from askwell.look.html import words_html
from askwell.look.svg import words_svg
from askwell.look.terminal import print_words
from askwell.look.words import BlankPlace, PromptToken, PromptWords, Word, look_at

__all__ = ["BlankPlace", "PromptToken", "PromptWords", "Word", "look_at", "print_words", "words_html", "words_svg"]
