"""Inputs and outputs as their handler's annotations say: checked, decoded, encoded, described."""

from __future__ import annotations

from typing import Any, get_args, get_origin, is_typeddict

import msgspec

from edgeq.core import json_text
from edgeq.core.input_rules import InputRules, check_value
from edgeq.errors import HandlerProblem, InvalidInput

# Outputs may hold what a handler computed, secrets included: only their shape is checked.
_SHAPE_ONLY = InputRules(max_bytes=2**31, secrets="warn")


class Codec:
    """One annotated type: a msgspec Struct, dataclass, TypedDict, pydantic model, dict or Any."""

    def __init__(self, annotation: Any, where: str) -> None:
        self._annotation = annotation
        self._is_pydantic = hasattr(annotation, "model_validate")
        self.takes_none = annotation in (Any, object, None, type(None))
        self._is_free = annotation in (Any, object) or _is_plain_dict(annotation)
        self.schema = self._describe(where)
        self._decoder = None if self._is_pydantic else msgspec.json.Decoder(annotation)

    def _describe(self, where: str) -> str | None:
        if self._annotation in (Any, object):
            return None
        try:
            if self._is_pydantic:
                described = self._annotation.model_json_schema()
            else:
                described = msgspec.json.schema(self._annotation)
        except TypeError as wrong:
            raise HandlerProblem(
                f"{where} is annotated with {self._annotation!r}, which cannot be read from JSON: "
                f"{wrong}. Use a msgspec Struct, dataclass, TypedDict, pydantic model or dict."
            ) from wrong
        return json_text.canonical(described)

    def made(self, value: Any) -> bool:
        """Whether a value is of the annotated class, and so needs no check."""
        # On Python 3.11 and later `Any` is a class, but no class to be an instance of; nor is a
        # TypedDict.
        is_class = isinstance(self._annotation, type) and self._annotation is not Any
        return (
            is_class and not is_typeddict(self._annotation) and isinstance(value, self._annotation)
        )

    def read(self, text: str) -> Any:
        """Stored JSON text as the annotated type, or InvalidInput with path and reason."""
        try:
            if self._decoder is not None:
                return self._decoder.decode(text)
        except msgspec.ValidationError as wrong:
            raise InvalidInput.at(*json_text.located(str(wrong))) from wrong
        except msgspec.DecodeError as wrong:
            raise InvalidInput.at("$", str(wrong)) from wrong
        return self.typed(json_text.decode(text))

    def typed(self, plain: Any) -> Any:
        """Plain data as the annotated type, or InvalidInput with path and reason."""
        if self._is_free and (isinstance(plain, dict) or self._annotation in (Any, object)):
            return plain
        try:
            if self._is_pydantic:
                return self._annotation.model_validate(plain)
            return msgspec.convert(plain, self._annotation)
        except msgspec.ValidationError as wrong:
            raise InvalidInput.at(*json_text.located(str(wrong))) from wrong
        except ValueError as wrong:
            raise InvalidInput.at("$", str(wrong).replace("\n", " ")) from wrong


def _is_plain_dict(annotation: Any) -> bool:
    """A dict that says nothing of its values needs no conversion."""
    if get_origin(annotation) is dict:
        return get_args(annotation) in ((str, Any), (str, object))
    return annotation is dict


def plain(value: Any) -> Any:
    """Values of every kind that a codec knows, nested ones too, as plain data."""
    try:
        return msgspec.to_builtins(value, enc_hook=_dumped)
    except (TypeError, ValueError) as wrong:
        raise InvalidInput.at("$", f"cannot be stored: {wrong}") from wrong


def _dumped(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    raise TypeError(f"{type(value).__name__} is not JSON")


def encode_output(codec: Codec, value: Any) -> str:
    """A handler's answer as JSON text; it has to fit what the handler is annotated to return."""
    if value is None and codec.takes_none:
        return "null"
    kept = plain(value)
    check_value(kept, _SHAPE_ONLY)
    if not codec.made(value):
        codec.typed(kept)
    return json_text.encode(kept)


def encode_input(value: Any) -> str:
    """The input of a job for whoever stores it, who knows what else its type asks of it."""
    kept = value if isinstance(value, dict) else {} if value is None else plain(value)
    check_value(kept, _SHAPE_ONLY)
    return json_text.encode(kept)
