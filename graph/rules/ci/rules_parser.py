"""Parses `rules` of a job. Each function raises PipelineConfigError, with the location and line."""

from graph.rules.ci.commit_files import MAX_PATTERN_LENGTH, glob_expression
from graph.rules.ci.config_errors import PipelineConfigError, quote
from graph.rules.ci.config_values import is_empty, parse_boolean, parse_choice, parse_string, parse_strings
from graph.rules.ci.expressions import ExpressionBudget, InvalidExpression
from graph.rules.ci.job_rules import MAX_PATTERNS, MAX_RULES, JobRule
from graph.rules.ci.rule_conditions import Condition, count_comparisons, parse_condition
from graph.rules.ci.yaml_documents import MappingEntry, MappingNode, SequenceNode
from storage.tables import RunWhen

RULE_KEYS = ("if", "changes", "exists", "when", "allow_failure")
NEVER = "never"


def parse_rules(location: str, entry: MappingEntry, default: RunWhen, expressions: ExpressionBudget) -> tuple[JobRule, ...]:
    """The rules of a job; `default` is its `when`, which holds for rules without their own. Also raises TooManyExpressions."""
    if not isinstance(entry.value, SequenceNode):
        raise PipelineConfigError.from_message(f"{location} should be a list of mappings with {', '.join(RULE_KEYS)}.", entry.line)
    if len(entry.value.items) > MAX_RULES:
        raise PipelineConfigError.from_message(f"{location}: has {len(entry.value.items)} rules; the limit is {MAX_RULES}.", entry.line)
    found = []
    for item in entry.value.items:
        if not isinstance(item, MappingNode):
            raise PipelineConfigError.from_message(f"{location} should be a list of mappings with {', '.join(RULE_KEYS)}.", item.line)
        found.append(_parse_rule(location, item, default, expressions))
    return tuple(found)


def _parse_rule(location: str, node: MappingNode, default: RunWhen, expressions: ExpressionBudget) -> JobRule:
    parts = {key: part for key, part in node.entries.items() if not is_empty(part)}
    for key, part in parts.items():
        if key not in RULE_KEYS:
            raise PipelineConfigError.from_message(
                f"{location}: {quote(key)} is not supported. Supported: {', '.join(RULE_KEYS)}.", part.line
            )
    run_when: RunWhen | None = default
    if "when" in parts:
        text = parse_choice(f"{location}: when", parts["when"], [*RunWhen, NEVER])
        run_when = None if text == NEVER else RunWhen(text)
    condition = _parse_condition(f"{location}: if", parts["if"], expressions) if "if" in parts else None
    changes = _parse_patterns(f"{location}: changes", parts["changes"], expressions) if "changes" in parts else None
    exists = _parse_patterns(f"{location}: exists", parts["exists"], expressions) if "exists" in parts else None
    return JobRule(
        condition=condition,
        changes=changes,
        exists=exists,
        run_when=run_when,
        allow_failure=parse_boolean(f"{location}: allow_failure", parts["allow_failure"]) if "allow_failure" in parts else None,
        comparisons=(count_comparisons(condition) if condition is not None else 0) + len(changes or ()) + len(exists or ()),
    )


def _parse_condition(location: str, entry: MappingEntry, expressions: ExpressionBudget) -> Condition:
    text = parse_string(location, entry)
    try:
        return parse_condition(text, expressions.compile)
    except ValueError as error:
        raise PipelineConfigError.from_message(f"{location}: {quote(text)} is not a valid condition: {error}.", entry.line) from error


def _parse_patterns(location: str, entry: MappingEntry, expressions: ExpressionBudget) -> tuple[str, ...]:
    found = tuple(text.removeprefix("/") for text in parse_strings(location, entry))
    if len(found) > MAX_PATTERNS:
        raise PipelineConfigError.from_message(f"{location}: has {len(found)} patterns; the limit is {MAX_PATTERNS}.", entry.line)
    for text in found:
        try:
            if len(text) > MAX_PATTERN_LENGTH or "\n" in text:
                raise InvalidExpression(f"it has a line break, or more than {MAX_PATTERN_LENGTH} characters")
            expression = glob_expression(text)
            expressions.compile(expression, max_length=len(expression))
        except InvalidExpression as error:
            raise PipelineConfigError.from_message(f"{location}: {quote(text)} is not a valid pattern: {error}.", entry.line) from error
    return found
