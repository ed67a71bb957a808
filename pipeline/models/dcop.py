"""A distributed problem: a model of costs, and the agents that own its variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from decimal import Decimal
from functools import cached_property

from ...tasks.steps.light_dataclass import dataclass
from ..errors import ModelError, public, shorten
from .checks import first_again
from .model import Model, checked_model

# No file means more digits, and what is written is as long as that.
AMOUNT_DIGITS = 40


def amount_fault(amount: Decimal) -> str | None:
    """Return the requirement that an agent's cost violates, or None."""
    if not amount.is_finite() or amount < 0:
        return "a number of at least 0"
    _, digits, exponent = amount.as_tuple()
    long = max(len(digits), abs(int(exponent))) > AMOUNT_DIGITS
    return f"a number of at most {AMOUNT_DIGITS} digits" if long else None


@public
@dataclass(frozen=True)
class Agent:
    """An agent, and what a problem's author says about it; only the owner of a variable matters to an answer.

    Parameters
    ----------
    name : str
    capacity : Decimal, optional
        How much it has room for.
    hosting_cost : Decimal
        Cost of hosting a variable that ``hosting`` does not list.
    hosting : mapping of str to Decimal
        Cost of hosting each listed variable or function, by name.
    routes : mapping of str to Decimal
        Cost of a message to each listed agent, in both directions; other agents have the problem's default cost.

    Examples
    --------
    >>> import bucketflow
    >>> bucketflow.load_dcop("meetings").agents[0].name
    'ada'
    """

    name: str
    capacity: Decimal | None = None
    hosting_cost: Decimal = Decimal(0)
    hosting: Mapping[str, Decimal] = field(default_factory=dict)
    routes: Mapping[str, Decimal] = field(default_factory=dict)


@dataclass(frozen=True)
class External:
    """A variable without an owner: a sensor's, say; functions are meant at its initial value.

    Parameters
    ----------
    name : str
    states : tuple of str
    initial : int
        The state that it is in, by index.
    """

    name: str
    states: tuple[str, ...]
    initial: int


@public
@dataclass(frozen=True, eq=False)
class Dcop:
    """A model of costs whose variables are owned by agents.

    Parameters
    ----------
    model : Model
        Of costs.
    agents : tuple of Agent
        Their names are distinct; an agent may own nothing.
    owners : tuple of int
        For each variable its agent, by index.
    functions : tuple of str
        Names of the model's functions.
    default_route : Decimal
        Cost of a message between agents without a listed route.
    noise : mapping of str to Decimal
        Names of variables whose states cost a random number from 0 to this besides; it is in no function.
    externals : tuple of External
        External variables. Functions were read with each external variable fixed at its initial value.

    Raises
    ------
    ModelError
        If the model holds probabilities, a variable has no owner, or names repeat.

    Examples
    --------
    >>> import bucketflow
    >>> problem = bucketflow.load_dcop("meetings")
    >>> [agent.name for agent in problem.agents][:3]
    ['ada', 'ben', 'cleo']
    """

    model: Model
    agents: tuple[Agent, ...]
    owners: tuple[int, ...]
    functions: tuple[str, ...] = ()
    default_route: Decimal = Decimal(1)
    noise: Mapping[str, Decimal] = field(default_factory=dict)
    externals: tuple[External, ...] = ()

    def __post_init__(self) -> None:
        model, names = self.model, [agent.name for agent in self.agents]
        if model.kind != "cost":
            raise ModelError("agents own variables of a model of costs; this one holds probabilities")
        if (twice := first_again(names)) is not None:
            raise ModelError(f"the agent {shorten(twice)!r} occurs twice")
        if model.hidden:
            raise ModelError(
                f"agents own no hidden variables, but functions of the model need {model.hidden}; "
                "use solve or count, which answer for the whole model"
            )
        if len(self.owners) != len(model.dims):
            raise ModelError(f"{len(self.owners)} owners are given for {len(model.dims)} variables")
        for name, owner in zip(model.names, self.owners, strict=True):
            if not 0 <= owner < len(names):
                raise ModelError(f"variable {name!r} is owned by agent {owner}; there are {len(names)} agents")
        if not self.functions:
            object.__setattr__(self, "functions", tuple(f"c{k}" for k in range(len(model.functions))))
        if len(self.functions) != len(model.functions):
            raise ModelError(f"{len(self.functions)} names are given for {len(model.functions)} functions")

    def _repr_html_(self) -> str:
        from ..drawings.html import shown_rows

        return shown_rows([("agents", f"{len(self.agents):,}"), *self.model.rows()])

    def __repr__(self) -> str:
        return f"<{len(self.agents)} agents of {self.model!r}>"

    @property
    def notes(self) -> tuple[str, ...]:
        """Limitations of answers, one sentence each: the model's notes and the agents' notes."""
        count = sum(level > 0 for level in self.noise.values())
        noise = f"answers ignore the random noise of {count} variable{'s' * (count > 1)}"
        return (*self.model.notes, noise) if count else self.model.notes

    @cached_property
    def owned(self) -> tuple[tuple[int, ...], ...]:
        """For each agent its variables, in the model's order."""
        variables: list[list[int]] = [[] for _ in self.agents]
        for v, owner in enumerate(self.owners):
            variables[owner].append(v)
        return tuple(map(tuple, variables))

    def route(self, first: int, second: int) -> Decimal:
        """Return the cost of a message between two agents."""
        one, other = self.agents[first], self.agents[second]
        return one.routes.get(other.name, other.routes.get(one.name, self.default_route))


def one_agent_each(model: Model) -> Dcop:
    """Give every variable an agent of its own, which has its name.

    Raises
    ------
    ModelError
        If the model has hidden variables.
    """
    return Dcop(model, tuple(map(Agent, model.names)), tuple(range(len(model.dims))))


def with_agents(problem: Model | Dcop) -> Dcop:
    """Return a distributed problem, or one of a model: of an agent for each variable.

    Raises
    ------
    ModelError
        If it is neither.
    """
    if not isinstance(problem, Dcop | Model):
        raise ModelError(
            f"a Dcop or a Model is expected, found {type(problem).__name__}; bucketflow.load_dcop reads one"
        )
    return problem if isinstance(problem, Dcop) else one_agent_each(problem)


def model_of(problem: Model | Dcop) -> Model:
    """Return the model, or the model of a distributed problem with all its notes."""
    if not isinstance(problem, Dcop):
        return checked_model(problem)
    model, notes = problem.model, problem.notes
    return model if notes == model.notes else replace(model, notes=notes)


def owned_by(problem: Model | Dcop, variables: Mapping[str, Sequence[str]]) -> Dcop:
    """Give variables to agents. A model gets new agents; a distributed problem keeps its agents.

    Parameters
    ----------
    problem : Model or Dcop
    variables : mapping
        Agent name → names of its variables; names of functions may be among them, and do not matter.

    Raises
    ------
    ModelError
        If a name is none of the problem's, or a variable has no owner or two.
    """
    if isinstance(problem, Model):
        problem = Dcop(problem, tuple(map(Agent, variables)), (0,) * len(problem.dims) if variables else ())
    model, agents = problem.model, {agent.name: k for k, agent in enumerate(problem.agents)}
    owners: dict[str, int] = {}
    for agent, names in variables.items():
        if agent not in agents:
            raise ModelError(f"there is no agent {shorten(agent)!r} in the problem")
        for name in names:
            if name in model.index:
                if owners.setdefault(name, agents[agent]) != agents[agent]:
                    raise ModelError(f"variable {name!r} is given to two agents")
            elif name not in problem.functions:
                raise ModelError(f"agent {agent!r} is given {shorten(name)!r}, which is not a variable of the model")
    if orphans := [name for name in model.names if name not in owners]:
        raise ModelError(f"variable {orphans[0]!r} has no agent")
    return replace(problem, owners=tuple(owners[name] for name in model.names))
