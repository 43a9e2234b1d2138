"""Generated code: a function that makes the answer's dictionary of each object of a level, in the order of the selection."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache, lru_cache
from typing import Any

import orjson
from graphql import GraphQLLeafType, Undefined, is_enum_type
from sqlalchemy import BigInteger

from graph.filling import spelling_of
from graph.forms import Form

PLAIN: Mapping[str, type] = {"String": str, "GitOid": str, "Int": int, "Boolean": bool}
"""Scalars of which every value of that Python type, as a column gives it, is its own spelling."""

Shell = Callable[[Sequence[Any]], list[dict[str, Any]]]


class Anomaly(Exception):
    """Something that graphql-core has to say: a null where none may be, a value that its type cannot spell."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A value that is read off an object, and how it is spelled, in its form if it has one; a `plain` one as it is."""

    key: str
    attribute: str
    kind: GraphQLLeafType
    needed: bool
    plain: bool
    form: Form | None = None


@dataclass(frozen=True, slots=True)
class Computed:
    """A value that is made of what is read off an object, and that is its own spelling."""

    key: str
    make: Callable[..., Any]
    attributes: Sequence[str]
    needed: bool


def shell(parts: Sequence[Leaf | Computed | tuple[str, Any]]) -> Shell:
    """`parts` are in the order of the answer; the (key, value) pairs are of what is the same for all, or filled in later.

    Rows keep their columns in their `__dict__`, where they are read past the mapping's machinery; whatever is not found there is read
    by its name. Names in the generated text are numbers and attributes of ours; what callers wrote stands beside it as values.
    """
    scope: dict[str, Any] = {"Anomaly": Anomaly, "needed": needed}
    quick, slow = [], []
    for number, part in enumerate(parts):
        if isinstance(part, Leaf):
            scope |= {f"k{number}": part.key, f"s{number}": spelling(part.kind, part.needed, part.form)}
            quick.append(f"k{number}: {_read(number, part)}")
            slow.append(f"k{number}: s{number}(o.{part.attribute})")
        elif isinstance(part, Computed):
            scope |= {f"k{number}": part.key, f"m{number}": part.make}
            for texts, each in ((quick, "d[{!r}]"), (slow, "o.{}")):
                made = f"m{number}({', '.join(map(each.format, part.attributes))})"
                texts.append(f"k{number}: {f'needed({made})' if part.needed else made}")
        else:
            scope |= {f"k{number}": part[0], f"v{number}": part[1]}
            quick.append(f"k{number}: v{number}")
            slow.append(f"k{number}: v{number}")
    text = f"""
def slow(objects):
    return [{{{", ".join(slow)}}} for o in objects]

def fill(objects):
    try:
        return [{{{", ".join(quick)}}} for o in objects for d in (o.__dict__,)]
    except (AttributeError, KeyError, Anomaly):
        return slow(objects)
"""
    exec(compile(text, "<plan>", "exec"), scope)  # noqa: S102 - the text is made of numbers and attribute names of ours alone
    return scope["fill" if any(isinstance(part, Leaf | Computed) for part in parts) else "slow"]  # type: ignore[no-any-return]


def _read(number: int, leaf: Leaf) -> str:
    value = f"d[{leaf.attribute!r}]"
    if not leaf.plain:
        return f"s{number}({value})"
    # What its column gives is what the answer has, or null.
    return f"s{number}(None) if (v := {value}) is None else v" if leaf.needed else value


def needed(value: Any) -> Any:
    """Raises Anomaly for a null that may not be."""
    if value is None:
        raise Anomaly
    return value


@lru_cache(maxsize=1024)
def spelling(kind: GraphQLLeafType, needed: bool, form: Form | None = None) -> Callable[[Any], Any]:
    """Spells a value as graphql-core does, or in a form. Raises whatever graphql-core raises, Anomaly for a null that may not be."""
    spell = spelling_of(kind)
    change = None if form is None else changed_by(form, kind)

    def spelled(value: Any) -> Any:
        if value is None and not needed:
            return None
        found = spell(value)
        if found is None or found is Undefined:
            raise Anomaly
        return found if change is None else change(found)

    return spelled


def is_plain(column: Any, leaf: GraphQLLeafType) -> bool:
    """Whether a column gives nothing but what the answer has. (An Int of the database is one of GraphQL: both have 32 bits.)"""
    wanted, kind = PLAIN.get(leaf.name), column.type
    return wanted is not None and not isinstance(kind, BigInteger) and getattr(kind, "impl", kind).python_type is wanted


def changed_by(form: Form, kind: GraphQLLeafType) -> Callable[[str], str] | None:
    """What a form does to the graph's own spelling of a type; None: nothing."""
    if is_enum_type(kind):
        return {name: form.enum(name) for name in kind.values}.__getitem__
    return form.instant if kind.name == "DateTime" else None


def instants_of(is_text: bool) -> Callable[[list[Any]], list[Any]]:
    """Spells instants in UTC and nulls, which the driver gives as texts or as datetimes, as `graph/scalars.py` does. All of a column
    together, which costs a fifth of one by one."""
    return _of_texts if is_text else _of_datetimes


@cache
def formed_instants(spell: Callable[[list[Any]], list[Any]], change: Callable[[list[Any]], list[Any]]) -> Callable[[list[Any]], list[Any]]:
    """The same for the same: what is spelled alike is spelled together."""
    return lambda values: change(spell(values))


WHOLE = len("2016-01-19 08:40:25")
EXACT = len("2016-01-19 08:40:25.934000")
ENDS = {WHOLE: ".000000Z", **{length: "0" * (EXACT - length) + "Z" for length in range(WHOLE + 2, EXACT + 1)}}
"""What a text lacks, by its length: the last zeros of a second are not always given."""


def _of_texts(values: list[str | None]) -> list[str | None]:
    there = [value for value in values if value is not None]
    lengths = set(map(len, there))
    if not lengths <= ENDS.keys():
        raise Anomaly
    if len(lengths) == 1:
        end = ENDS[lengths.pop()]
        spelled = ("\n".join(there) + end).replace(" ", "T").replace("\n", f"{end}\n").split("\n")
        if len(there) == len(values):
            return spelled  # type: ignore[return-value]
        each = iter(spelled)
        return [None if value is None else next(each) for value in values]
    return [None if value is None else f"{value[:10]}T{value[11:]}{ENDS[len(value)]}" for value in values]


SPELLED = len("2016-01-19T08:40:25.934000Z")


def _of_datetimes(values: list[datetime | None]) -> list[str | None]:
    texts = orjson.loads(orjson.dumps(values, option=orjson.OPT_UTC_Z))
    # A whole second comes without its digits.
    return [text if text is None or len(text) == SPELLED else f"{text[:-1]}.000000Z" for text in texts]
