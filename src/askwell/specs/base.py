"""What all specs have in common."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from askwell.errors import BadOption, did_you_mean


class Spec(BaseModel):
    """Frozen, and refuses keys that it does not know and numbers that are not finite; the text under a field is its
    description."""

    older_names: ClassVar[tuple[str, ...]] = ()
    """Fields that it no longer has, but still reads."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)

    @classmethod
    def given(
        cls,
        spec: Self | None,
        choices: Mapping[str, Any],
        *,
        to: Callable[..., Any],
        elsewhere: Mapping[str, "type[Spec]"],
    ) -> Self:
        """The spec that was given to a function, or that of the fields that were given by name instead of it.

        `to` is the function. `elsewhere` names others that take the fields of another spec, for the message about a
        field that was given to the wrong one.
        """
        takes = f"give {cls.__name__}(…), or its fields by name"
        if spec is not None and not isinstance(spec, cls):
            raise BadOption(f"{type(spec).__name__} is not {cls.__name__}: {takes}")
        if spec is not None and choices:
            raise BadOption(f"a spec and {', '.join(choices)} are given: {takes}, not both")
        return spec or cls.of(choices, to=to, elsewhere=elsewhere)

    @classmethod
    def of(
        cls, choices: Mapping[str, Any], *, to: Callable[..., Any], elsewhere: Mapping[str, "type[Spec]"] | None = None
    ) -> Self:
        """The spec of these fields; BadOption if one is unknown or has a value that it cannot have."""
        try:
            return cls(**choices)
        except ValidationError as error:
            problem = error.errors()[0]
        field = ".".join(map(str, problem["loc"]))
        if problem["type"] != "extra_forbidden":
            value = f"{field}={problem['input']!r}: " if field else ""
            raise BadOption(f"{value}{problem['msg'].removeprefix('Value error, ')}")
        owners = [function for function, other in (elsewhere or {}).items() if field in other.model_fields]
        if owners:
            raise BadOption(f"{field} is not chosen here: give it to {owners[0]}")
        raise no_such_option(field, to, cls)


def no_such_option(option: str, to: Callable[..., Any], *specs: type[Spec]) -> BadOption:
    """The error that a function, which also takes the fields of some specs by name, has no such option."""
    own = [name for name, one in inspect.signature(to).parameters.items() if one.kind is one.KEYWORD_ONLY]
    fields = [name for spec in specs for name in spec.model_fields]
    return BadOption(f"there is no option {option!r}{did_you_mean(option, dict.fromkeys([*own, *fields]))}")
