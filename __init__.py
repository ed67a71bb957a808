"""Exact inference on discrete graphical models by bucket elimination."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .cluster.version import __version__ as __version__

if TYPE_CHECKING:
    from .pipeline.agents.dpop import dpop
    from .pipeline.api.asynchronous import amarginals, asolve
    from .pipeline.api.best import best
    from .pipeline.api.bound import bound
    from .pipeline.api.editable import EditableModel
    from .pipeline.api.einsum import ContractionOptimizer, einsum
    from .pipeline.api.look import convert, draw, evaluate, info
    from .pipeline.api.marginals import marginals
    from .pipeline.api.sample import sample
    from .pipeline.api.sensitivity import sensitivity
    from .pipeline.api.solve import load, load_dcop, plan, solve
    from .pipeline.batches.batch import batch
    from .pipeline.batches.summary import BatchSummary
    from .pipeline.bridges.cpmpy_bridge import from_cpmpy
    from .pipeline.bridges.labelled_tables import from_arrays, from_pandas
    from .pipeline.bridges.network_bridges import (
        from_networkx,
        from_pgmpy,
        from_pyagrum,
        from_pytoulbar2,
        to_pgmpy,
        to_pyagrum,
    )
    from .pipeline.bridges.sklearn_bridge import BayesClassifier
    from .pipeline.circuits import jax_functions as jax
    from .pipeline.circuits import torch_functions as torch
    from .pipeline.circuits.circuit_check import check_circuit
    from .pipeline.circuits.circuit_model import Circuit, circuit, load_circuit
    from .pipeline.compiled.compiled import Compiled, conditional, entropy, mutual_information
    from .pipeline.compiled.compiled import compile_model as compile
    from .pipeline.dynamic.dynamic import DynamicNetwork, StatePath, StepMarginals, dynamic
    from .pipeline.errors import (
        BucketflowError,
        BudgetError,
        DeadlineError,
        FormatError,
        IncompatibleRunError,
        InternalError,
        ModelError,
        StoppedError,
    )
    from .pipeline.examples import examples
    from .pipeline.formats.registry import formats
    from .pipeline.formats.write import save
    from .pipeline.jobs.job import Job, jobs
    from .pipeline.jobs.resume import resume
    from .pipeline.jobs.submit import submit
    from .pipeline.learning.fitted import FittedModel
    from .pipeline.learning.fitting import fit
    from .pipeline.models.dcop import Agent, Dcop
    from .pipeline.models.frames import Evaluation
    from .pipeline.models.model import Function, Model
    from .pipeline.models.random_dcops import generate
    from .pipeline.plans.plan import Plan
    from .pipeline.report.report import report
    from .pipeline.results.best_assignments import BestAssignments, RankedAssignment
    from .pipeline.results.bounds import Bounds
    from .pipeline.results.dpop_result import DpopMetrics, DpopResult
    from .pipeline.results.labeled_array import LabeledArray
    from .pipeline.results.parameter_slopes import Sensitivity
    from .pipeline.results.posteriors import CaseMarginals, Marginals
    from .pipeline.results.result import Result
    from .pipeline.results.samples import Samples
    from .pipeline.server.server import serve
    from .pipeline.simulation.simulate import simulate

__all__ = [
    "Agent",
    "BatchSummary",
    "BayesClassifier",
    "BestAssignments",
    "Bounds",
    "BucketflowError",
    "BudgetError",
    "CaseMarginals",
    "Circuit",
    "Compiled",
    "ContractionOptimizer",
    "Dcop",
    "DeadlineError",
    "DpopMetrics",
    "DpopResult",
    "DynamicNetwork",
    "EditableModel",
    "Evaluation",
    "FittedModel",
    "FormatError",
    "Function",
    "IncompatibleRunError",
    "InternalError",
    "Job",
    "LabeledArray",
    "Marginals",
    "Model",
    "ModelError",
    "Plan",
    "RankedAssignment",
    "Result",
    "Samples",
    "Sensitivity",
    "StatePath",
    "StepMarginals",
    "StoppedError",
    "amarginals",
    "asolve",
    "batch",
    "best",
    "bound",
    "check_circuit",
    "circuit",
    "compile",
    "conditional",
    "convert",
    "dpop",
    "draw",
    "dynamic",
    "einsum",
    "entropy",
    "evaluate",
    "examples",
    "fit",
    "formats",
    "from_arrays",
    "from_cpmpy",
    "from_networkx",
    "from_pandas",
    "from_pgmpy",
    "from_pyagrum",
    "from_pytoulbar2",
    "generate",
    "info",
    "jax",
    "jobs",
    "load",
    "load_circuit",
    "load_dcop",
    "marginals",
    "mutual_information",
    "plan",
    "report",
    "resume",
    "sample",
    "save",
    "sensitivity",
    "serve",
    "simulate",
    "solve",
    "submit",
    "to_pgmpy",
    "to_pyagrum",
    "torch",
]

# Imported on first use, so that `bucketflow --help` and `import bucketflow` are instant.
_HOME = {
    "api.asynchronous": "amarginals asolve",
    "api.best": "best",
    "api.bound": "bound",
    "api.editable": "EditableModel",
    "api.einsum": "ContractionOptimizer einsum",
    "agents.dpop": "dpop",
    "api.solve": "load load_dcop plan solve",
    "bridges.network_bridges": "from_pyagrum to_pyagrum from_networkx from_pgmpy to_pgmpy from_pytoulbar2",
    "bridges.labelled_tables": "from_arrays from_pandas",
    "bridges.cpmpy_bridge": "from_cpmpy",
    "bridges.sklearn_bridge": "BayesClassifier",
    "circuits.circuit_check": "check_circuit",
    "circuits.circuit_model": "Circuit circuit load_circuit",
    "api.look": "convert draw evaluate info",
    "compiled.compiled": "Compiled compile_model conditional entropy mutual_information",
    "examples": "examples",
    "report.report": "report",
    "dynamic.dynamic": "DynamicNetwork StatePath StepMarginals dynamic",
    "errors": "BucketflowError BudgetError DeadlineError FormatError "
    "IncompatibleRunError InternalError ModelError StoppedError",
    "api.marginals": "marginals",
    "formats.registry": "formats",
    "formats.write": "save",
    "learning.fitting": "fit",
    "learning.fitted": "FittedModel",
    "models.random_dcops": "generate",
    "models.dcop": "Agent Dcop",
    "models.frames": "Evaluation",
    "models.model": "Function Model",
    "plans.plan": "Plan",
    "simulation.simulate": "simulate",
    "results.best_assignments": "BestAssignments RankedAssignment",
    "results.bounds": "Bounds",
    "results.dpop_result": "DpopMetrics DpopResult",
    "results.labeled_array": "LabeledArray",
    "results.posteriors": "CaseMarginals Marginals",
    "results.result": "Result",
    "results.samples": "Samples",
    "results.parameter_slopes": "Sensitivity",
    "jobs.resume": "resume",
    "api.sample": "sample",
    "api.sensitivity": "sensitivity",
    "batches.batch": "batch",
    "batches.summary": "BatchSummary",
    "jobs.job": "Job jobs",
    "jobs.submit": "submit",
    "server.server": "serve",
}
# Functions for other frameworks, imported when they are named.
_FRAMEWORKS = {"jax": "circuits.jax_functions", "torch": "circuits.torch_functions"}
# `compile` is a builtin, so the function has another name where it is written.
_RENAMED = {"compile": "compile_model"}


def __getattr__(name: str) -> Any:
    wanted = _RENAMED.get(name, name)
    for module, names in _HOME.items():
        if wanted in names.split():
            value = getattr(import_module(f".pipeline.{module}", __name__), wanted)
            globals()[name] = value
            return value
    if name in _FRAMEWORKS:
        return import_module(f".pipeline.{_FRAMEWORKS[name]}", __name__)
    if name in ("tune", "Tuning"):
        from .pipeline.errors import TUNE_REMOVED

        raise AttributeError(TUNE_REMOVED)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
