"""What must be said beside the words, so that they are not taken for more than they are."""

from collections.abc import Sequence

from askwell.look.words import TIE, BlankPlace, PromptToken, PromptWords, visible

NOT_AN_EXPLANATION = "Nearest words are not an explanation of a soft prompt."


def notes_on_prompt(prompt: PromptWords) -> list[str]:
    """What is particular to one prompt: what of its template is not read, and how far later layers are moved."""
    notes = []
    if prompt.cut_text.strip():
        notes.append(f"cut after [Y], not read by the LM: “{visible(prompt.cut_text.strip())}”")
    for stack, norms in prompt.deep_norms.items():
        name = "" if stack == "layers" else f" {stack}"
        layers = "layer 1" if len(norms) == 1 else f"layers 1 to {len(norms)}"
        notes.append(f"mean |Δ| of{name} {layers}: {' '.join(f'{norm:#.2g}' for norm in norms)}")
    return notes


def copy_of(prompt: PromptWords) -> str:
    """Which copy of its template the prompt is, if there are several."""
    return "" if prompt.copy is None else f"copy {prompt.copy} of {prompt.copies}"


def notes_on_all(prompts: Sequence[PromptWords]) -> list[str]:
    """What holds for the whole drawing."""
    notes = []
    if any(not prompt.original_is_initial for prompt in prompts):
        notes.append(
            "The vectors started at random, not from words: an original word here only stands at that place of the "
            "template, and |v0| is the length of the random vector."
        )
    if any(prompt.deep_norms for prompt in prompts):
        notes.append("Later layers are tuned, too (Δ): the words tell nothing of that.")
    if any(_is_glued(item) for prompt in prompts for item in prompt.items):
        notes.append(f"{TIE} goes on from what stands before it, without a space.")
    return [*notes, f"{NOT_AN_EXPLANATION} Even an untuned vector's nearest word need not be its own."]


def _is_glued(item: PromptToken | BlankPlace) -> bool:
    if isinstance(item, BlankPlace):
        return item.glued
    return item.tuned.glued or item.original.glued
