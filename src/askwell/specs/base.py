"""What all specs have in common."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from askwell.errors import BadOption, did_you_mean


class Spec(BaseModel):
    """The base of all specs: frozen; refuses unknown keys and numbers that are not finite. The docstring of a field is
    its description."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)

    @classmethod
    def given(
        cls,
        spec: Self | None,
        choices: Mapping[str, Any],
        *,
        to: Callable[..., Any],
        elsewhere: Mapping[str, "type[Spec]"] | None = None,
    ) -> Self:
        """Return the spec that was passed to the function `to`, or build it from the fields passed by name instead.

        BadOption is raised if a field is unknown or has an invalid value. `elsewhere` names functions that take the
        fields of other specs, for the message about a field that was passed to the wrong one.
        """
        if spec is not None and choices:
            fields = ", ".join(choices)
            raise BadOption(f"a spec and {fields} are given: give {cls.__name__}(…), or its fields by name, not both")
        for option in (option for option in choices if option not in cls.model_fields):
            for function, other in (elsewhere or {}).items():
                if option in other.model_fields:
                    raise BadOption(f"{option} is not chosen here: give it to {function}")
            raise no_such_option(option, to, cls)
        try:
            return spec or cls(**choices)
        except ValidationError as error:
            problem = error.errors()[0]
        field = ".".join(map(str, problem["loc"]))
        value = f"{field}={problem['input']!r}: " if field else ""
        raise BadOption(f"{value}{problem['msg'].removeprefix('Value error, ')}")


def no_such_option(option: str, to: Callable[..., Any], *specs: type[Spec]) -> BadOption:
    """Return the error for an unknown option of a function that also takes the fields of some specs by name."""
    own = [name for name, one in inspect.signature(to).parameters.items() if one.kind is one.KEYWORD_ONLY]
    fields = [name for spec in specs for name in spec.model_fields]
    return BadOption(f"there is no option {option!r}{did_you_mean(option, dict.fromkeys([*own, *fields]))}")
