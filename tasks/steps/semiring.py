"""Commutative semirings as frozen values: the multiplication and the sum of a step."""

from __future__ import annotations

from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from .light_dataclass import dataclass

Law = Literal["min_plus", "sum_product", "log_sum", "mod_sum_product"]

_DTYPES: Final[dict[Law, tuple[str, ...]]] = {
    "min_plus": ("int16", "int32", "int64", "float64"),
    "sum_product": ("float64",),
    "log_sum": ("float64",),
    "mod_sum_product": ("int64",),
}


@dataclass(frozen=True, slots=True)
class Semiring:
    """One semiring over one dtype.

    Attributes
    ----------
    name
        The law: ``min_plus``, ``sum_product``, ``log_sum`` or ``mod_sum_product``.
    dtype
        Name of the NumPy dtype that all tables of a step share.
    zero
        Identity of the sum, absorbing for the product. For integer costs the saturating infinity.
    one
        Identity of the product.
    max_inputs
        Number of values that may be added before the sum must be clamped to `zero`; 0 for no limit.
    modulus
        The prime of ``mod_sum_product``; 0 otherwise.

    Raises
    ------
    ValueError
        If the law is not defined over the dtype, or a parameter is out of range.
    """

    name: Law
    dtype: str
    zero: int | float
    one: int | float
    max_inputs: int = 0
    modulus: int = 0

    def __post_init__(self) -> None:
        if self.dtype not in _DTYPES[self.name]:
            raise ValueError(f"{self.name} is defined over {_DTYPES[self.name]}, not over {self.dtype}")
        if self.saturates and self.max_inputs < 2:
            raise ValueError(f"max_inputs must be at least 2 for integer costs, not {self.max_inputs}")
        if self.name == "mod_sum_product" and not 2 <= self.modulus < 2**31:
            raise ValueError(f"modulus must be a prime in [2, 2**31), not {self.modulus}")

    @property
    def saturates(self) -> bool:
        """Whether sums are clamped to `zero` (integer costs)."""
        return self.name == "min_plus" and self.dtype != "float64"

    @property
    def itemsize(self) -> int:
        """Bytes of one value."""
        return np.dtype(self.dtype).itemsize


def min_plus(dtype: npt.DTypeLike = "float64", max_inputs: int = 8) -> Semiring:
    """Build the semiring of costs: sums are minima, products are additions.

    For integers the infinity is ``max // max_inputs``, so that `max_inputs` values may be added without
    overflow; every sum that reaches it is clamped to it. Finite costs must stay below it.
    """
    name = np.dtype(dtype).name
    if name == "float64":
        return Semiring("min_plus", name, float("inf"), 0.0)
    if name not in _DTYPES["min_plus"]:
        raise ValueError(f"min_plus is defined over {_DTYPES['min_plus']}, not over {name}")
    return Semiring("min_plus", name, int(np.iinfo(name).max) // max(max_inputs, 1), 0, max_inputs)


def mod_sum_product(modulus: int) -> Semiring:
    """Build the field of residues modulo a prime below ``2**31``, held in int64 (exact counting)."""
    return Semiring("mod_sum_product", "int64", 0, 1, modulus=modulus)


MIN_PLUS: Final = min_plus("float64")
SUM_PRODUCT: Final = Semiring("sum_product", "float64", 0.0, 1.0)
LOG_SUM: Final = Semiring("log_sum", "float64", float("-inf"), 0.0)
