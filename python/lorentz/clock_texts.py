"""Options of a clock: from keywords to the texts that the command reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lorentz import _native
from lorentz.times import duration_text, host_time_text, tdf_text


def clock_texts(options: Mapping[str, object], accepted: type) -> dict[str, str]:
    """Returns options of a clock as texts, by their names in the command.

    `accepted` is the class of lorentz.clock_options that has the keywords. Raises TypeError for
    another keyword, and WrongInputError for a value that the option does not accept.
    """
    texts = {}
    for keyword, value in options.items():
        if keyword not in accepted.__annotations__:
            names = ", ".join(accepted.__annotations__)
            raise TypeError(f"unexpected keyword {keyword!r}; expected one of {names}")
        if value is not None:
            hint = accepted.__annotations__[keyword].__forward_arg__
            texts[keyword.replace("_", "-")] = _TEXTS.get(hint, str)(value)
    _native.clock_flags(list(texts.items()))
    return texts


#: Functions that make a text of a value, by the type of the keyword.
_TEXTS: dict[str, Callable[..., str]] = {
    "HostTime": host_time_text,
    "Duration": duration_text,
    "Ratio": tdf_text,
    "bool": lambda value: "true" if value else "false",
}
