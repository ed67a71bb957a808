"""pyDCOP's YAML: domains, variables with costs, constraints by intention and extension, and agents with their costs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from itertools import count, product
from typing import Any

import numpy as np

from ...errors import FormatError, ModelError, encodable, shorten
from ...models.dcop import Dcop, External, amount_fault
from ..decimal_costs import Number
from ..format_policy import WRITTEN_ENTRIES
from ..text.source import Source, check_deadline
from ..text.tables import cell_count
from ..text.written_words import WrittenFile, WrittenWords, cost_text, highest_costs, lost_top, words_of
from ..text.written_words import listed as listed_entries
from ..text.yaml import YamlNode, number_of, read_tree, shown, yaml_quoted, yaml_word
from .draft import Draft, Given
from .expression_arithmetic import ExpressionError, Value, bounded
from .pydcop_agents import amount_of, check_keys, read_agents, read_owners
from .python_expressions import Expression, parse

_RANGE = re.compile(r"\s*([+-]?[0-9]{1,18})\s*\.\.\s*([+-]?[0-9]{1,18})\s*")


@dataclass(frozen=True, eq=False)
class _Domain:
    """Values as expressions see them, and as text."""

    values: tuple[Value, ...]
    labels: tuple[str, ...]

    @cached_property
    def computable(self) -> tuple[Value, ...]:
        """The values; a value too large for computations raises an error."""
        return tuple(map(bounded, self.values))


def read_pydcop(source: Source) -> Dcop:
    """Read a pyDCOP problem (.yaml), including the costs of its agents and its must-host hints.

    Variables that no agent must host go to the agent whose hosting cost is least, then to the one with fewest. External
    variables have their initial value. Noise is in no cost: its ``noise_level`` is kept beside the model.

    Raises
    ------
    FormatError
        If the file is malformed, or an expression does anything but compute a number from variables.
    """
    return _PydcopReader(source).dcop()


class _PydcopReader:
    """A file as it is being read."""

    def __init__(self, source: Source) -> None:
        self.draft = Draft(source)
        self.root = self._mapping(read_tree(source), "sections such as variables and constraints")
        self.domains: dict[str, _Domain] = {}
        self.fixed: dict[str, Value] = {}

    def dcop(self) -> Dcop:
        """Read all sections."""
        self._refuse_others()
        check_keys(self.root, "the problem", self.draft)
        self._header()
        domains = {str(name): self._domain(name, part) for name, part in self._section("domains")}
        for name, part in self._section("variables"):
            self._variable(str(name), part, domains)
        for name, part in self._section("external_variables"):
            self._external(str(name), part, domains)
        for name, part in self._section("variables"):
            self._variable_cost(str(name), part)
        for name, part in self._section("constraints"):
            self._constraint(str(name), part)
        read_agents(self.root, self.draft)
        read_owners(self.root, self.draft)
        return self.draft.dcop()

    def _refuse_others(self) -> None:
        for section, what in (("distribution", "a distribution, which --agents takes"), ("events", "a scenario")):
            if section in self.root and "variables" not in self.root:
                raise self.draft.fail(self.root[section].line, "a problem with variables", what)

    def _header(self) -> None:
        objective = self.root.get("objective", YamlNode(1, "min"))
        if objective.value not in ("min", "max"):
            raise self.draft.fail(objective.line, "the objective min or max", repr(shorten(str(objective.value))))
        self.draft.maximize = objective.value == "max"
        self.draft.name = str(self.root.get("name", YamlNode(1, "")).value)

    def _section(self, name: str) -> Iterator[tuple[Any, YamlNode]]:
        part = self.root.get(name)
        if part is not None and part.value is not None:
            yield from self._mapping(part, f"named {name}").items()

    def _mapping(self, part: YamlNode, what: str) -> dict[Any, YamlNode]:
        if not isinstance(part.value, dict):
            raise self.draft.fail(part.line, what, shown(part))
        return part.value

    def _entry(self, part: YamlNode, key: str, of: str) -> YamlNode:
        inside = self._mapping(part, f"{key} of {of}")
        if key not in inside:
            raise self.draft.fail(part.line, f"{key} of {of}", "none")
        return inside[key]

    def _domain(self, name: Any, part: YamlNode) -> _Domain:
        given = self._entry(part, "values", f"domain {shorten(str(name))!r}")
        check_keys(part, "domains", self.draft)
        values = [entry.value for entry in given.value] if isinstance(given.value, list) else [given.value]
        if len(values) == 1 and isinstance(values[0], str) and (bounds := _RANGE.fullmatch(values[0])):
            low, high = map(int, bounds.groups())
            self.draft.take_states(max(high - low + 1, 0))
            values = list(range(low, high + 1))
        if any(isinstance(value, list | dict) or value is None for value in values):
            raise self.draft.fail(given.line, "words and numbers", "a list in a list")
        labels = self.draft.domain(given.line, str(name), [str(value) for value in values])
        return _Domain(tuple(values), labels)

    def _of_domain(self, name: str, part: YamlNode, domains: Mapping[str, _Domain]) -> _Domain:
        named = self._entry(part, "domain", f"variable {shorten(name)!r}")
        if str(named.value) not in domains:
            raise self.draft.fail(named.line, f"a domain of variable {shorten(name)!r}", shown(named))
        return domains[str(named.value)]

    def _variable(self, name: str, part: YamlNode, domains: Mapping[str, _Domain]) -> None:
        domain = self._of_domain(name, part, domains)
        check_keys(part, "variables", self.draft)
        self.draft.variable(part.line, name, domain.labels)
        self.domains[name] = domain
        if "noise_level" in part.value:
            self.draft.noise[name] = amount_of(part.value["noise_level"], self.draft)

    def _external(self, name: str, part: YamlNode, domains: Mapping[str, _Domain]) -> None:
        domain = self._of_domain(name, part, domains)
        check_keys(part, "external variables", self.draft)
        initial = self._entry(part, "initial_value", f"external variable {shorten(name)!r}")
        if name in self.domains or initial.value not in domain.values:
            raise self.draft.fail(initial.line, f"a value of external variable {shorten(name)!r}", shown(initial))
        self.fixed[name] = initial.value
        self.draft.externals.append(External(name, domain.labels, domain.values.index(initial.value)))

    def _variable_cost(self, name: str, part: YamlNode) -> None:
        """Read a variable's cost function as a function of its own."""
        cost = part.value.get("cost_function")
        if cost is None:
            return
        expression = self._parsed(cost)
        if extra := [each for each in expression.names if each != name]:
            raise self.draft.fail(cost.line, f"a cost of {shorten(name)!r} alone", f"the name {shorten(extra[0])!r}")
        self._tabulate(f"cost_{name}", cost, expression, [name], {})

    def _constraint(self, name: str, part: YamlNode) -> None:
        kind = self._entry(part, "type", f"constraint {shorten(name)!r}")
        check_keys(part, "extensions" if kind.value == "extensional" else "intentions", self.draft)
        if kind.value == "intention":
            self._intention(name, part)
        elif kind.value == "extensional":
            self._extension(name, part)
        else:
            raise self.draft.fail(kind.line, "a constraint of type intention or extensional", shown(kind))

    def _intention(self, name: str, part: YamlNode) -> None:
        if "source" in part.value:
            raise self.draft.fail(part.value["source"].line, "an expression", "a file of Python code, which is not run")
        function = self._entry(part, "function", f"constraint {shorten(name)!r}")
        expression = self._parsed(function)
        fixed = dict(self.fixed)
        if "partial" in part.value:
            frozen = self._mapping(part.value["partial"], "values of variables")
            fixed.update({str(variable): self._plain_value(value) for variable, value in frozen.items()})
        self._tabulate(name, function, expression, [each for each in expression.names if each not in fixed], fixed)

    def _plain_value(self, part: YamlNode) -> Value:
        if isinstance(part.value, list | dict) or part.value is None:
            raise self.draft.fail(part.line, "a word or a number as a value", shown(part))
        return part.value

    def _parsed(self, part: YamlNode) -> Expression:
        try:
            return parse(str(part.value))
        except ExpressionError as error:
            raise self._wrong(part, error) from None

    def _wrong(self, part: YamlNode, error: ExpressionError) -> FormatError:
        return self.draft.fail(part.line, "an expression of numbers and variables", str(error))

    def _tabulate(
        self, name: str, part: YamlNode, expression: Expression, names: Sequence[str], fixed: Mapping[str, Value]
    ) -> None:
        """Evaluate an expression for all values of its variables."""
        self._note_texts(part.line, expression)
        scope = self.draft.scope(part.line, names)
        count = cell_count(scope, self.draft.dims)
        self.draft.take_costs(part.line, count, scope, dense=True)
        self.draft.take_work(part.line, count, expression.work, python=True)
        costs: list[Number] = []
        try:
            given = {each: bounded(fixed[each]) for each in expression.names if each in fixed}
            block = WRITTEN_ENTRIES
            for number, values in enumerate(product(*(self.domains[each].computable for each in names))):
                if number % block == 0:
                    check_deadline()
                costs.append(expression.cost({**given, **dict(zip(names, values, strict=True))}))
        except ExpressionError as error:
            raise self._wrong(part, error) from None
        self.draft.given.append(Given(name, part.line, scope, costs))

    def _note_texts(self, line: int, expression: Expression) -> None:
        """Note each text that a variable is compared with although its domain does not have it."""
        for name, text in expression.texts:
            values = self.domains[name].values if name in self.domains else (text,)
            if text in values:
                continue
            why = "is never equal, because the domain does not have it"
            if read := sorted({str(value).lower() for value in values if isinstance(value, bool)}):
                why = f"is never equal: YAML, and so pyDCOP, reads the domain as {' and '.join(read)}; quote its words"
            self.draft.note(line, f"the text {shorten(text)!r} that {shorten(name)!r} is compared with", why)

    def _extension(self, name: str, part: YamlNode) -> None:
        """Read costs with the assignments that have them, or a nested list of costs."""
        variables = self._entry(part, "variables", f"constraint {shorten(name)!r}")
        names = variables.value if isinstance(variables.value, list) else [variables]
        scope = self.draft.scope(variables.line, [str(each.value).strip() for each in names])
        values = self._entry(part, "values", f"constraint {shorten(name)!r}")
        if isinstance(values.value, list):
            self._matrix(name, values, scope)
            return
        costs, rows = self._rows(values, scope)
        default = part.value.get("default")
        self.draft.take_costs(part.line, len(costs), scope, dense=False)
        table = np.array(rows, dtype=np.int32).reshape(len(rows), len(scope))
        if default is None and len(np.unique(table, axis=0)) < cell_count(scope, self.draft.dims):
            found = f"{len(rows)} of {cell_count(scope, self.draft.dims)} assignments"
            raise self.draft.fail(part.line, f"a default, or all assignments, of {shorten(name)!r}", found)
        given = 0 if default is None else number_of(default, self.draft.source)
        self.draft.given.append(Given(name, part.line, scope, costs, table, given))

    def _rows(self, values: YamlNode, scope: Sequence[int]) -> tuple[list[Number], list[list[int]]]:
        """Read ``cost: a b | c d``."""
        places = [{label: k for k, label in enumerate(self.draft.labels[v])} for v in scope]
        costs: list[Number] = []
        rows: list[list[int]] = []
        for cost, listed in self._mapping(values, "costs with their assignments").items():
            stored = number_of(YamlNode(listed.line, cost), self.draft.source)
            for text in str(listed.value).split("|"):
                words = text.split()
                known = [place.get(word, -1) for place, word in zip(places, words, strict=False)]
                if len(words) != len(scope) or -1 in known:
                    found = repr(shorten(text.strip()))
                    raise self.draft.fail(listed.line, f"values of {len(scope)} variables, of their domains", found)
                costs.append(stored)
                rows.append(known)
        return costs, rows

    def _matrix(self, name: str, values: YamlNode, scope: Sequence[int]) -> None:
        cells = cell_count(scope, self.draft.dims)
        self.draft.take_costs(values.line, cells, scope, dense=True)
        costs: list[Number] = []
        self._flatten(values, [self.draft.dims[v] for v in scope], costs)
        self.draft.given.append(Given(name, values.line, tuple(scope), costs))

    def _flatten(self, part: YamlNode, dims: Sequence[int], costs: list[Number]) -> None:
        if not dims:
            costs.append(number_of(part, self.draft.source))
            return
        if not isinstance(part.value, list) or len(part.value) != dims[0]:
            raise self.draft.fail(part.line, f"a list of {dims[0]}", shown(part))
        for inside in part.value:
            self._flatten(inside, dims[1:], costs)


# pyDCOP's YAML: functions by extension, and agents with must-host hints.

# Of one value alone, it would be a range.
_WRITTEN_RANGE = re.compile(r".*\.\..*")


def pydcop_file(dcop: Dcop) -> WrittenFile:
    """Return the lines of a file, and what it does not keep.

    Raises
    ------
    ModelError
        If what agents cost cannot be written, or costs are infinite to the format.
    """
    highest_costs(dcop.model, ".yaml")
    words = words_of(dcop, _is_plain, _is_key)
    renamed, lost = _hosted(dcop, words)
    externals, clash = _externals(dcop, words)
    notes = (*words.notes, *lost_top(dcop.model), *lost, *clash)
    return WrittenFile(list(_lines(renamed, words, externals)), notes)


def _externals(dcop: Dcop, words: WrittenWords) -> tuple[tuple[External, ...], tuple[str, ...]]:
    """External variables under names that no variable has in the file, and notes where these or values are others."""
    found, notes, taken = dcop.externals, [], set(words.names)
    if {external.name for external in found} & taken or not all(_is_key(each.name) for each in found):
        free = (name for k in count() if (name := f"e{k}") not in taken)
        found = tuple(replace(external, name=name) for external, name in zip(found, free, strict=False))
        notes.append(
            "names of external variables are not kept, because variables have the same names or they are not "
            "plain words"
        )
    if not all(_are_values(external.states) for external in found):
        counted = [tuple(map(str, range(len(external.states)))) for external in found]
        found = tuple(replace(external, states=states) for external, states in zip(found, counted, strict=True))
        notes.append(
            "values of external variables are not kept, because some are not plain words: they are numbered from 0"
        )
    return found, tuple(notes)


def _hosted(dcop: Dcop, words: WrittenWords) -> tuple[Dcop, tuple[str, ...]]:
    """Return the problem with hosting costs under the names in the file, and a note if some are lost."""
    called = {**dict(zip(dcop.functions, words.functions, strict=True)), **_variables(dcop, words)}
    agents, lost = [], 0
    for agent in dcop.agents:
        names = {called.get(name, name): name for name in agent.hosting}
        hosting = {name: agent.hosting[own] for name, own in names.items() if _is_key(name)}
        lost += len(agent.hosting) - len(hosting)
        agents.append(replace(agent, hosting=hosting))
    notes = (
        (f"hosting costs of {lost} computations are not kept, because the computations have no names in the file",)
        if lost
        else ()
    )
    return replace(dcop, agents=tuple(agents)), notes


def _variables(dcop: Dcop, words: WrittenWords) -> dict[str, str]:
    return dict(zip(dcop.model.names, words.names, strict=True))


def _is_plain(word: str) -> bool:
    return word.isprintable() and word.split() == [word] and "|" not in word and not _WRITTEN_RANGE.fullmatch(word)


def _is_key(word: str) -> bool:
    """Whether a word may be a name; sections of agents have an entry for all others, which is called default."""
    # YAML takes no key of more characters without a sign of its own
    return _is_plain(word) and len(word) <= 128 and word != "default"


def _are_values(words: Sequence[str]) -> bool:
    """Whether words may be values that stand alone."""
    return all(encodable(word) == word for word in words) and (len(words) > 1 or not _WRITTEN_RANGE.fullmatch(words[0]))


def _lines(dcop: Dcop, words: WrittenWords, externals: Sequence[External]) -> Iterator[str]:
    model = dcop.model
    yield f"name: {yaml_word(model.name)}"
    yield f"objective: {'max' if model.maximize else 'min'}"
    different = dict.fromkeys([*words.labels, *(external.states for external in externals)])
    domains = {labels: f"d{k}" for k, labels in enumerate(different)}
    yield "domains:"
    for labels, name in domains.items():
        yield f"  {name}: {{values: [{', '.join(map(_value, labels))}]}}"
    yield "variables:"
    for own, name, labels in zip(model.names, words.names, words.labels, strict=True):
        noise = f", noise_level: {_number(dcop.noise[own])}" if own in dcop.noise else ""
        yield f"  {yaml_word(name)}: {{domain: {domains[labels]}{noise}}}"
    if externals:
        yield "external_variables:"
    for external in externals:
        initial = _value(external.states[external.initial])
        yield f"  {yaml_word(external.name)}: {{domain: {domains[external.states]}, initial_value: {initial}}}"
    yield "constraints:" if model.functions else "constraints: {}"
    for k in range(len(model.functions)):
        yield from _constraint(dcop, words, k)
    yield from _agents(dcop, words)


def _constraint(dcop: Dcop, words: WrittenWords, k: int) -> Iterator[str]:
    model, (scope, table) = dcop.model, listed_entries(dcop.model, k)
    default = cost_text(model, table.default, ".inf")
    yield f"  {yaml_word(words.functions[k])}:"
    yield "    type: extensional"
    yield f"    variables: [{', '.join([yaml_word(words.names[v]) for v in scope])}]"
    yield f"    default: {default}"
    yield "    values:" if table.by_cost else "    values: {}"
    labels = [words.labels[v] for v in scope]
    for cost, cells in table.by_cost.items():
        rows = (" ".join([own[state] for own, state in zip(labels, cell, strict=True)]) for cell in cells)
        yield f"      {cost_text(model, cost, '.inf')}: {yaml_quoted(' | '.join(rows))}"


def _agents(dcop: Dcop, words: WrittenWords) -> Iterator[str]:
    yield "agents:"
    for agent, name in zip(dcop.agents, words.agents, strict=True):
        yield f"  {yaml_word(name)}: {'{}' if agent.capacity is None else f'{{capacity: {_number(agent.capacity)}}}'}"
    yield "distribution_hints:"
    yield "  must_host:"
    for host, owned in zip(words.agents, dcop.owned, strict=True):
        if owned:
            yield f"    {yaml_word(host)}: [{', '.join(yaml_word(words.names[v]) for v in owned)}]"
    yield from _routes(dcop, words)
    yield from _hosting(dcop, words)


def _routes(dcop: Dcop, words: WrittenWords) -> Iterator[str]:
    if dcop.default_route == 1 and not any(agent.routes for agent in dcop.agents):
        return
    known = dict(zip((agent.name for agent in dcop.agents), words.agents, strict=True))
    yield "routes:"
    yield f"  default: {_number(dcop.default_route)}"
    for agent in dcop.agents:
        if agent.routes:
            costs = ", ".join(f"{yaml_word(known[name])}: {_number(cost)}" for name, cost in agent.routes.items())
            yield f"  {yaml_word(known[agent.name])}: {{{costs}}}"


def _hosting(dcop: Dcop, words: WrittenWords) -> Iterator[str]:
    if not any(agent.hosting_cost or agent.hosting for agent in dcop.agents):
        return
    yield "hosting_costs:"
    for agent, name in zip(dcop.agents, words.agents, strict=True):
        costs = ", ".join(f"{yaml_word(hosted)}: {_number(cost)}" for hosted, cost in agent.hosting.items())
        yield f"  {yaml_word(name)}: {{default: {_number(agent.hosting_cost)}, computations: {{{costs}}}}}"


def _number(value: Decimal) -> str:
    if (fault := amount_fault(value)) is not None:
        raise ModelError(f"the model cannot be written as .yaml, where agents cost {fault}; found {value}")
    return f"{value:f}"


def _value(label: str) -> str:
    """A value: an integer where it reads back as the same text."""
    return label if re.fullmatch(r"0|-?[1-9][0-9]{0,17}", label) else yaml_quoted(label)
