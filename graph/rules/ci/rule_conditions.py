"""Conditions of `rules: if`: variables compared with strings, null and expressions, joined by `&&`, `||` and parentheses."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from graph.rules.ci.expressions import ExpressionSearches, InvalidExpression, compile_expression

MAX_CONDITION_LENGTH = 1_000
MAX_DEPTH = 20
"""Nested parentheses."""

_TOKEN_PATTERN = re.compile(
    r"""\s*(?:\$\{?(?P<variable>[A-Za-z_][A-Za-z0-9_]*)\}?|"(?P<double>[^"]*)"|'(?P<single>[^']*)'|(?P<operator>==|!=|=~|!~|&&|\|\||\(|\))"""
    r"""|/(?P<expression>(?:[^/\\]|\\.)+)/(?P<flag>i?)|(?P<null>null)\b)\s*"""
)


@dataclass(frozen=True, slots=True)
class Operand:
    """A variable, or a string, which is None for `null`."""

    variable: str | None
    text: str | None = None

    def value(self, variables: Mapping[str, str]) -> str | None:
        return self.text if self.variable is None else variables.get(self.variable)


@dataclass(frozen=True, slots=True)
class ValueComparison:
    """Both operands are equal, or one has a value if there is no other; negated for `!=`."""

    left: Operand
    right: Operand | None
    is_negated: bool = False

    def holds(self, variables: Mapping[str, str], searches: ExpressionSearches) -> bool:
        value = self.left.value(variables)
        return bool(value) if self.right is None else (value == self.right.value(variables)) is not self.is_negated


@dataclass(frozen=True, slots=True)
class ExpressionMatch:
    """The operand matches an expression anywhere; negated for `!~`. Without a value it does not match."""

    left: Operand
    source: str
    ignore_case: bool
    is_negated: bool

    def holds(self, variables: Mapping[str, str], searches: ExpressionSearches) -> bool:
        value = self.left.value(variables)
        matches = value is not None and searches.contains(value, self.source, ignore_case=self.ignore_case)
        return matches is not self.is_negated


@dataclass(frozen=True, slots=True)
class LogicalExpression:
    """A conjunction of conditions if `needs_all`, else a disjunction."""

    parts: tuple["Condition", ...]
    needs_all: bool

    def holds(self, variables: Mapping[str, str], searches: ExpressionSearches) -> bool:
        return (all if self.needs_all else any)(part.holds(variables, searches) for part in self.parts)


Condition: TypeAlias = ValueComparison | ExpressionMatch | LogicalExpression


def parse_condition(text: str, compile_match: Callable[..., Any] = compile_expression) -> Condition:
    """Parse the condition. Raises ValueError with the reason, and what `compile_match` raises, which compiles its expressions.

    >>> parse_condition('$A == "x" && $B').holds({"A": "x", "B": "1"}, ExpressionSearches())
    True
    """
    if len(text) > MAX_CONDITION_LENGTH:
        raise ValueError(f"it has more than {MAX_CONDITION_LENGTH} characters")
    parser = _ConditionParser(_tokenize(text), compile_match)
    found = parser.parse_any(0)
    if parser.tokens:
        raise ValueError(f"{parser.tokens[0][0].strip()} is not expected there")
    return found


def count_comparisons(condition: Condition) -> int:
    """The comparisons that a condition makes at most."""
    return sum(map(count_comparisons, condition.parts)) if isinstance(condition, LogicalExpression) else 1


def _tokenize(text: str) -> list[re.Match[str]]:
    tokens, position = [], 0
    while position < len(text):
        token = _TOKEN_PATTERN.match(text, position)
        if token is None:
            raise ValueError(
                'it contains something other than $VARIABLE, "string", /expression/, null, ==, !=, =~, !~, &&, || and parentheses'
            )
        tokens.append(token)
        position = token.end()
    return tokens


@dataclass(slots=True)
class _ConditionParser:
    tokens: list[re.Match[str]]
    compile_match: Callable[..., Any]

    def parse_any(self, depth: int) -> Condition:
        return self._parse_junction("||", depth)

    def _parse_junction(self, operator: str, depth: int) -> Condition:
        parts = [self._parse_part(operator, depth)]
        while self._take_operator(operator):
            parts.append(self._parse_part(operator, depth))
        return parts[0] if len(parts) == 1 else LogicalExpression(tuple(parts), operator == "&&")

    def _parse_part(self, operator: str, depth: int) -> Condition:
        return self._parse_junction("&&", depth) if operator == "||" else self._parse_comparison(depth)

    def _parse_comparison(self, depth: int) -> Condition:
        if self._take_operator("("):
            if depth >= MAX_DEPTH:
                raise ValueError(f"it has more than {MAX_DEPTH} nested parentheses")
            found = self.parse_any(depth + 1)
            if not self._take_operator(")"):
                raise ValueError("a closing parenthesis is missing")
            return found
        left = self._take_operand()
        for operator in ("==", "!="):
            if self._take_operator(operator):
                return ValueComparison(left, self._take_operand(), operator == "!=")
        for operator in ("=~", "!~"):
            if self._take_operator(operator):
                if not self.tokens or self.tokens[0]["expression"] is None:
                    raise ValueError(f"an expression such as /^release-/ must follow {operator}")
                token = self.tokens.pop(0)
                source = token["expression"].replace("\\/", "/")
                try:
                    self.compile_match(source, ignore_case=bool(token["flag"]))
                except InvalidExpression as error:
                    raise ValueError(f"/{source}/ is not a valid RE2 expression: {error}") from error
                return ExpressionMatch(left, source, bool(token["flag"]), operator == "!~")
        return ValueComparison(left, None)

    def _take_operator(self, operator: str) -> bool:
        if self.tokens and self.tokens[0]["operator"] == operator:
            self.tokens.pop(0)
            return True
        return False

    def _take_operand(self) -> Operand:
        if self.tokens:
            groups = self.tokens[0].groupdict()
            for kind in ("variable", "double", "single", "null"):
                if groups[kind] is not None:
                    self.tokens.pop(0)
                    return Operand(groups[kind]) if kind == "variable" else Operand(None, None if kind == "null" else groups[kind])
        raise ValueError('a $VARIABLE, a "string" or null is missing')
