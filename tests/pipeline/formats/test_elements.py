"""Every element that the documentation of a format names is read, noted in the answer, or refused by name."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

import bucketflow
from bucketflow.pipeline.errors import FormatError, ModelError
from bucketflow.pipeline.formats.read import load_evidence

from .test_formats_data import toulbar2


def told(path: Path, text: str, query: Any) -> str:
    """The answer to a file with its notes, or what is said of the file where there is none."""
    path.write_text(text)
    try:
        model = bucketflow.load(path)
        found = bucketflow.marginals(model) if query == "marginals" else bucketflow.solve(model, query)
    except FormatError as error:
        return f"{error.line}: {error.found.removesuffix(', which is not read')}"
    except ModelError as error:
        return str(error).removeprefix(f"{path}:")
    return "; ".join([_value(found), *found.notes])


def _value(found: Any) -> str:
    if found.status == "infeasible":
        return "infeasible"
    log10 = getattr(found, "log10", None) if hasattr(found, "log10") else found.log10_evidence
    return str(found.value) if found.value is not None else f"{10**log10:.6g}"


# x1 or x2, and not x1 or x3 or x4: 10 assignments, 3 of x1 and x2.
CNF = "p cnf 4 2\n1 2 0\n-1 3 4 0\n"


def counted(told: str, count: str = "2 of 4") -> str:
    return f"assignments of {count} variables alone are counted ({told!r}), optima are of all"


def differs(said: int, found: int) -> str:
    return f"the header says {said} clauses, the file has {found}, which are all read"


DIMACS = {
    # comments of people
    "c": (
        "c\ncfoo\nc index 3 4\nc ind. support: 1\nc t his is\nc max size is 3\nc p cnf 9 9\nc MUST go\nc cross 1\n",
        "count",
        "10",
    ),
    "comments between": (CNF.replace("3 4", "3\nc in the middle\n4"), "count", "10"),
    # projected counting
    "c ind": ("c\nc ind 1 0\nc ind 2 0\n", "count", f"3; {counted('c ind')}"),
    "c ind, sum": ("c\nc ind 1 2 0\n", "partition", f"3; {counted('c ind')}"),
    "c ind, marginals": (
        "c\nc ind 1 2\n",
        "marginals",
        "2: 'c ind' asks for sums over 2 of 4 variables, but the marginals would be over all variables; if you mean "
        "all, remove that line from the file",
    ),
    "c ind, weights": (
        "c ind 1 2 0\nc p weight 3 .25 0\nc p weight -3 .5 0\nc p weight 1 .25 0\nc p weight -1 .5 0\n",
        "partition",
        f"1; {counted('c ind')}; weights of 1 variables that are not counted are ignored, as in the counting "
        "competitions",
    ),
    "c ind, optimum": ("c\nc ind 1 2 0\n", "optimum", f"1; {counted('c ind')}"),
    "c ind of all": ("c ind 1 2 3 0\nc ind 4 0\n", "count", "10"),
    "c ind of none": ("c\nc ind 0\n", "count", f"1; {counted('c ind', '0 of 4')}"),
    "c ind of no variable": ("c ind 1 5 0\n", "count", "1: '5'"),
    "c ind of a literal": ("c ind 1 -2 0\n", "count", "1: '-2'"),
    "c p show": ("c\nc p show 2 1 0\n", "count", f"3; {counted('c p show')}"),
    "c p show, optimum": ("c p show 1 2\n", "optimum", f"1; {counted('c p show')}"),
    "c p show of all": ("c p show 1 2 3 4 0\n", "count", "10"),
    "cr": ("c\ncr 1 2\n", "count", f"3; {counted('cr')}"),
    "c ind and c p show": ("c ind 1 2 0\nc p show 1 2 0\n", "optimum", f"1; {counted('c ind')}"),
    "c ind unlike c p show": ("c ind 1 2 0\nc p show 1 0\n", "count", "2: others in 'c p show'"),
    "c max": (
        "c max 1 2 0\nc ind 3 4 0\n",
        "optimum",
        "1: variables to maximise over ('c max'), which is not answered",
    ),
    "c max of a person": ("c max 7\n", "count", "10; 'c max' in line 1 is unknown and ignored"),
    "c p optshow": (
        "c p optshow 1 2 0\n",
        "count",
        "10; 'c p optshow' in line 1 names variables that determine the others; this changes no answer",
    ),
    # types of questions
    "c t mc": ("c t mc\n", "count", "10"),
    "c t wmc": ("c t wmc\nc p weight 1 .25 0\nc p weight -1 0.75 0\n", "partition", "4.5"),
    "c t pmc": ("c t pmc\n", "count", "1: 'c t pmc' alone"),
    "c t pwmc": ("c t pwmc\n", "optimum", "1: 'c t pwmc' alone"),
    "c t pmc, shown": ("c t pmc\nc p show 1 2 0\n", "count", f"3; {counted('c p show')}"),
    "c t mc, weighted": (
        "c t mc\nc p weight 1 .25 0\nc p weight -1 0.75 0\n",
        "partition",
        "4.5; the file asks for a count without its weights ('c t mc' in line 1)",
    ),
    "c t other": (
        "c t amc-complex\n",
        "count",
        "10; 'c t amc-complex' in line 1 names an unknown type of query",
    ),
    "c p other": ("c p sum 1 2 0\n", "count", "10; 'c p sum' in line 1 is unknown and ignored"),
    "c MUST MULTIPLY BY": (
        "c MUST MULTIPLY BY 2**3\n",
        "count",
        "10; 'c MUST MULTIPLY BY' in line 1 asks for the count times 2**3; answers do not include this factor",
    ),
    # weights of literals
    "c p weight of a fraction": ("c p weight 1 1/4 0\nc p weight -1 3/4\n", "partition", "4.5"),
    "c p weight of one literal": ("c p weight 1 .25 0\n", "partition", "1: that of 1"),
    "c p weight below 0": ("c p weight 1 -.25 0\n", "partition", "1: '-.25'"),
    "w": ("w 1 0.25\nw 2 -1\nw\t3\t1 \nw 4 -1\n", "partition", "2.5"),
    "w behind": (CNF + "w 1 0.25\nw 2 -1\nw 3 -1\nw 4 -1\n", "partition", "4.5"),
    "w of some": (
        "w 1 0.25\n",
        "partition",
        "0.5625; 3 of 4 variables have no line 'w': both literals of such a variable weigh 1/2, as in Cachet",
    ),
    "w of some, counted": (
        "w 1 0.25\n",
        "count",
        "10; 3 of 4 variables have no line 'w': both literals of such a variable weigh 1/2, as in Cachet",
    ),
    "w with 0": (
        "w 1 0.25 0\n",
        "partition",
        "1: a weight line that ends with 0, as in the competition of 2020; write 'c p weight LITERAL WEIGHT 0' for "
        "both literals",
    ),
    "w of a literal": ("w -1 0.25\n", "partition", "1: '-1'"),
    "w above 1": ("w 1 1.25\n", "partition", "1: '1.25'"),
    "w of no number": ("w 1 .\n", "partition", "1: '.'"),
    "w twice": ("w 1 0.25\nw 1 .5\n", "partition", "2: another one of 1"),
    "w and c p weight": ("c p weight 1 .5 0\nc p weight -1 .5 0\nw 2 0.25\n", "partition", "3: a line 'w'"),
    "c weights": ("c weights .25 .75 1 1 1 1 1 1\n", "partition", "4.5"),
    "c weights of some": ("c weights .25 .75\n", "partition", "1: 2"),
    # headers
    "more clauses": ("p cnf 4 1\n1 2 0\n-1 3 4 0\n", "count", f"10; {differs(1, 2)}"),
    "fewer clauses": ("p cnf 4 9\n1 2 0\n-1 3 4 0\n", "count", f"10; {differs(9, 2)}"),
    "more variables": (
        "p cnf 2 2\n1 2 0\n-1 3 4 0\n",
        "count",
        "10; the header says 2 variables, clauses name 4, which are all read",
    ),
    "two headers": (CNF + CNF, "count", "4: another line 'p'"),
    "%": (CNF + "%\n0\n", "count", "10"),
    "behind %": (CNF + "%\n1 0\n", "count", "4: '%'"),
    "p pcnf": (
        "p pcnf 4 2 2\nvp 1 2 0\n1 2 0\n-1 3 4 0\n",
        "count",
        "2: variables to count alone ('vp'): write 'p cnf' and 'c p show'",
    ),
    "p pcnf alone": ("p pcnf 4 0\n", "count", "1: a projected formula ('p pcnf'): write 'p cnf' and 'c p show'"),
    "p cnf+": ("p cnf+ 4 1\n1 2 3 >= 2\n", "count", "1: cardinality constraints ('p cnf+')"),
    "p knf": ("p knf 4 1\n1 2 0\n", "count", "1: cardinality constraints ('p knf')"),
    "p gcnf": ("p gcnf 4 1 1\n1 2 0\n", "count", "1: groups of clauses ('p gcnf')"),
    "p icnf": ("p icnf\n1 2 0\n", "count", "1: an incremental formula ('p icnf')"),
    "p dnf": ("p dnf 4 1\n1 2 0\n", "count", "1: a formula in disjunctive normal form ('p dnf')"),
    "p sat": ("p sat 4\n(+(1 2))\n", "count", "1: a formula of other operators ('p sat')"),
    "p edge": ("p edge 4 1\n", "count", "1: a graph"),
    # lines of other programs
    "x": (CNF + "x1 -2 0\n", "count", "4: a parity constraint ('x')"),
    "x apart": (CNF + "x 1 -2 0\n", "count", "4: a parity constraint ('x')"),
    "e": (CNF.replace("2\n1", "2\ne 1 2 0\n1"), "count", "2: a quantifier of QDIMACS"),
    "a": (CNF.replace("2\n1", "2\na 1 2 0\n1"), "count", "2: a quantifier of QDIMACS"),
    "r": (CNF.replace("2\n1", "2\nr 0.5 1 0\n1"), "count", "2: a random or dependent variable of SDIMACS or DQDIMACS"),
    "k": (CNF + "k 2 1 2 3 0\n", "count", "4: a cardinality constraint"),
    "{1}": (CNF + "{1} 1 2 0\n", "count", "4: a group of clauses"),
    "s": (CNF + "s SATISFIABLE\n", "count", "4: the answer of a solver"),
    "v": (CNF + "v 1 2 0\n", "count", "4: the answer of a solver"),
    "h": (CNF + "h 1 2 0\n", "count", "4: a line 'h', which files of MaxSAT have since 2022, without a line 'p'"),
    "another letter": (CNF + "z 1 2 0\n", "count", "4: 'z'"),
}


@pytest.mark.parametrize("name", DIMACS)
def test_dimacs(name: str, tmp_path: Path) -> None:
    text, query, wanted = DIMACS[name]
    text = text if text.startswith("p ") else text + CNF
    assert told(tmp_path / "a.cnf", text, query) == wanted


WCNF = {
    "top": ("p wcnf 2 3 9\n9 1 2 0\n3 -1 0\n2 -2 0\n", "2"),
    "above the top": ("p wcnf 2 3 9\n12 1 2 0\n3 -1 0\n2 -2 0\n", "2"),
    "no top": ("p wcnf 2 3\n9 1 2 0\n3 -1 0\n2 -2 0\n", "2"),
    "h": ("c since 2022\nh 1 2 0\n3 -1 0\n2 -2 0\n1 1 -2 0\n", "3"),
    "h apart": ("  h\t1 2\n0 3 -1 0\n2 -2 0\n", "2"),
    "h alone": ("h 1 0\nh -1 0\n", "infeasible"),
    "h of nothing": ("h 0\n1 1 0\n", "infeasible"),
    "no h": ("3 -1 0\n2 1 0\n", "2"),
    "large weights": ("h 1 2 0\n1152921504606846975 -1 0\n7 -2 0\n", "7"),
    "a weight too large": ("h 1 0\n4611686018427387904 -1 0\n", "2: '4611686018427387904'"),
    "decimals": ("p wcnf 3 7\n10 1 -2 0\n3 -1 2 -3 0\n0.8 -3 2 0\n5.6 1 3 0\n.1 -1 -3 0\n1e-1 2 0\n2.50 -2 0\n", "0.1"),
    "decimals of the new format": ("h 1 2 0\n0.1 -1 0\n0.2 -2 0\n0.7 -1 2 0\n", "0.2"),
    "a top with decimals": ("p wcnf 2 3 4.5\n4.5 1 2 0\n.3 -1 0\n.25 -2 0\n", "0.25"),
    "h in the middle": ("h 1 2 0\n3 h 0\n", "2: 'h'"),
    "h with a header": (
        "p wcnf 2 1 3\nh 1 2 0\n",
        "2: a line 'h', which files of MaxSAT have since 2022, without a line 'p'",
    ),
    "a weight of 0": ("h 1 2 0\n0 -1 0\n", "2: '0'"),
    "a weight below 0": ("h 1 2 0\n-1 -1 0\n", "2: '-1'"),
    "an infinite weight": ("h 1 2 0\ninf -1 0\n", "2: 'inf'"),
    "a top of 0": ("p wcnf 2 1 0\n1 1 2 0\n", "1: '0'"),
    "p cnf": ("p cnf 2 1\n1 2 0\n", "1"),
    "weights of literals": ("p wcnf 2 1 9\n9 1 2 0\nw 1 0.5\n", "3: a weight of a literal"),
    "more clauses": ("p wcnf 2 1 9\n9 1 2 0\n3 -1 0\n2 -2 0\n", f"2; {differs(1, 3)}"),
    "c ind": (
        "c ind 1 0\np wcnf 2 1 9\n9 1 2 0\n3 -1 0\n2 -2 0\n",
        f"2; {differs(1, 3)}; {counted('c ind', '1 of 2')}",
    ),
    "only comments": ("c nothing\n", "0"),
}


@pytest.mark.parametrize("name", WCNF)
def test_weighted_dimacs(name: str, tmp_path: Path) -> None:
    text, wanted = WCNF[name]
    assert told(tmp_path / "a.wcnf", text, "optimum") == wanted
    if text.startswith(("h ", "p ")):
        assert told(tmp_path / "formula", text, "optimum") == wanted


def test_projections_are_kept_from_no_file_without_a_word(tmp_path: Path) -> None:
    (tmp_path / "a.cnf").write_text("c ind 1 2 0\n" + CNF)
    model = bucketflow.load(tmp_path / "a.cnf")
    assert bucketflow.save(model, tmp_path / "a.uai")[-1] == "the projection on 2 variables is not kept"
    for ask in (
        bucketflow.compile,
        lambda m: bucketflow.bound(m, "partition"),
        bucketflow.marginals,
        bucketflow.circuit,
    ):
        with pytest.raises(ModelError, match="all variables; if you mean all, remove that line from the file"):
            ask(model)
    most = bucketflow.marginals(model, max_marginals=True)
    assert most["x3"].tolist() == [1, 1]


# Two variables of two states, one of three; the best of the table is 1.
WCSP = {
    "name": ("p 3 3 1 9\n2 2 3\n2 0 1 2 1\n1 1 1\n", "1"),
    "domains of fewer states": ("p 2 9 1 9\n2 2\n2 0 1 2 1\n1 1 1\n", "1"),
    "domains of more states": (
        "p 2 2 1 9\n2 3\n2 0 1 2 1\n1 2 1\n",
        "1; the header says domains of at most 2 states, one has 3, which are all read",
    ),
    "top": ("p 2 2 1 1\n2 2\n2 0 1 2 1\n1 1 1\n", "infeasible"),
    "default of the top": ("p 2 2 1 9\n2 2\n2 0 1 9 1\n1 1 1\n", "1"),
    "no variables": ("p 2 2 1 9\n2 2\n0 3 0\n", "3"),
    "shared": ("p 3 2 2 9\n2 2 2\n-2 0 1 2 1\n1 1 1\n2 1 2 2 -1\n", "2"),
    "shared, another default": (
        "p 3 2 2 9\n2 2 2\n-2 0 1 2 1\n1 1 1\n2 1 2 0 -1\n",
        "2; shared functions are reused 1 times with another default cost: as in toulbar2, this cost holds for more "
        "than 3 "
        "variables, and the shared function's own cost for fewer",
    ),
    "shared, another default of four": (
        "p 4 2 2 9\n2 2 2 2\n-4 0 1 2 3 2 1\n1 1 1 1 1\n4 3 2 1 0 0 -1\n",
        "2; shared functions are reused 1 times with another default cost: as in toulbar2, this cost holds for more "
        "than 3 "
        "variables, and the shared function's own cost for fewer",
    ),
    "shared whole, another default": ("p 2 2 2 9\n2 2\n-1 0 0 2\n0 1\n1 2\n1 1 7 -1\n", "2"),
    "shared later": ("p 2 2 2 9\n2 2\n1 1 0 -1\n-1 0 0 1\n0 1\n", "3: '-1'"),
    "shared, other domains": ("p 2 3 2 9\n2 3\n-1 0 0 1\n0 1\n1 1 0 -1\n", "5: domains (3,)"),
    "interval": ("p 2 5 1 9\n2 -5\n1 1 3 4\n0 7\n1 7\n2 7\n3 7\n", "3"),
    "intervals": ("p 2 -5 1 9\n-5 -5\n1 1 3 4\n0 7\n1 7\n2 7\n3 7\n", "3"),
    "no interval": ("p 2 5 0 9\n2 -2147483648\n", "2: '-2147483648'"),
    "negative cost": ("p 2 2 1 9\n2 2\n1 0 0 1\n1 -1\n", "4: '-1'"),
    "decimal cost": ("p 2 2 1 9\n2 2\n1 0 0 1\n1 0.5\n", "4: '0.5'"),
    "fewer functions": ("p 2 2 2 9\n2 2\n1 0 0 1\n1 5\n", "4: the end of the file"),
    "more functions": ("p 2 2 1 9\n2 2\n1 0 0 1\n1 5\n1 1 0 1\n1 5\n", "5: '1'"),
    **{
        word: (f"p 2 3 1 9\n3 3\n2 0 1 -1 {word} 1 2 3 4\n", f"3: the global cost function {word!r}")
        for word in ("wcspconstraint", "alldifferent")
    },
    "alldiff": ("p 2 3 2 9\n3 3\n2 0 1 -1 alldiff 0 1 2 4\n2 0 1 0 1\n0 1 3\n", "0"),
    "alldiff at the end, behind a number": ("p-2 2 3 1 9\n3 3\n2 0 1-1 alldiff 0", "0"),
    "gcc": ("p 2 3 2 9\n3 3\n2 0 1 -1 gcc 1 2 1 1 0\n1 0 0 1\n2 5\n", "0"),
    "gcc, moved costs": (
        "p 2 3 1 9\n3 3\n2 0 1 -1 gcc 1 2 1 1 1 2 4\n",
        "3: 1 of them in the global cost function 'gcc'",
    ),
    "shared global": ("p 2 3 1 9\n3 3\n-2 0 1 -1 salldiff var 1\n", "3: the global cost function 'salldiff'"),
}


@pytest.mark.parametrize("name", WCSP)
def test_wcsp(name: str, tmp_path: Path) -> None:
    text, wanted = WCSP[name]
    assert told(tmp_path / "a.wcsp", text, "optimum") == wanted


HEAD = '{"problem": {"name": "p", "mustbe": "<100"},\n"variables": {"x": ["a", "b"], "y": ["c", "d"], "z": 2},\n'
LONGER = (
    "costs with more decimals than 'mustbe' are read exactly, but toulbar2 truncates them (1 decimals, 0 in 'mustbe')"
)
TABLE = '"f1": {"scope": ["x", "y"], "costs": [5, 1, 2, 9]}'
CFN = {
    "names": (f'{HEAD}"functions": {{{TABLE}}}}}', "1"),
    "no quotes, commas and colons": (
        "{problem {name p mustbe <100}\nvariables {x [a b] y [c d]}\nfunctions {{scope [x y] costs [5 1 2 9]}}}",
        "1",
    ),
    "comments": (f'# first\n{HEAD}# second\n"functions": {{{TABLE}}}}} // last', "1"),
    "no name": ('{problem {mustbe "<9"}\nvariables {x 2}\nfunctions {{scope [x] costs [2 1]}}}', "1"),
    "no bound": ("{problem {name p}\nvariables {x 2}\nfunctions {{scope [x] costs [200 100]}}}", "100"),
    "no problem": ("{variables {x 2}\nfunctions {{scope [x] costs [2 1]}}}", "1"),
    "most": ('{problem {mustbe ">0"}\nvariables {x 2}\nfunctions {{scope [x] costs [2 1]}}}', "2"),
    "bound of neither": ('{problem {mustbe "=0"}\nvariables {x 2}}', "1: '\"=0\"'"),
    "two bounds": ('{problem {mustbe "<9" mustbe "<8"}\nvariables {x 2}}', "1: 'mustbe'"),
    "another property": ("{problem {name p author me}\nvariables {x 2}}", "1: 'author'"),
    "two problems": ("{problem {name p}\nproblem {name q}}", "2: 'problem'"),
    "another section": (f'{HEAD}"constraints": {{}}}}', "3: '\"constraints\"'"),
    "no sections": ("{{p <100} [[a b] 2] [{[0 1] [5 1 2 9]}]}", "1: an object without names"),
    "variables without names": (
        "{variables [[a b] 2]\nfunctions {{scope [0 1] costs [5 1 2 9]} {scope [x1] costs [1 0]}}}",
        "1",
    ),
    "functions without names": ("{variables {x 2}\nfunctions [{scope [x] costs [2 1]}]}", "1"),
    "interval": ("{variables {x -5}\nfunctions {{scope [x] costs [4 3 2 1 2]}}}", "1"),
    "no interval": ("{variables {x -a}}", "1: '-a'"),
    "defaultcost": (
        f'{HEAD}"functions": {{"f": {{"scope": ["x", "y"], "defaultcost": 3, "costs": [a, 1, 2]}}}}}}',
        "2",
    ),
    "defaultcost alone": (f'{HEAD}"functions": {{"f": {{"scope": ["x", "y"], "defaultcost": 3}}}}}}', "3"),
    "a tuple twice": (
        f'{HEAD}"functions": {{"f": {{"scope": ["x", "z"], "defaultcost": 3, "costs": [a, 1, 2, 0, 1, 1]}}}}}}',
        "3: one of them twice",
    ),
    "quoted numbers": (f'{HEAD}"functions": {{"f": {{"scope": ["x"], "costs": ["1.5", "2"]}}}}}}', f"1.5; {LONGER}"),
    "shared, later": (f'{HEAD}"functions": {{"f2": {{"scope": ["y", "z"], "costs": "f1"}},\n{TABLE}}}}}', "3"),
    "shared, later by two": (
        f'{HEAD}"functions": {{"f2": {{"scope": ["y", "z"], "costs": "f1"}}, '
        f'{{"scope": ["z", "x"], "costs": f1}},\n{TABLE}}}}}',
        "8",
    ),
    "shared, before and later": (
        f'{HEAD}"functions": {{{TABLE},\n"f2": {{"scope": ["y", "z"], "costs": "f1"}},\n'
        '"f1": {"scope": ["x", "z"], "costs": [7, 8, 9, 10]}}}',
        "17",
    ),
    "shared, before": (
        f'{HEAD}"functions": {{{TABLE},\n"f2": {{"scope": ["y", "z"], "costs": "f1"}}}}}}',
        "4: '\"f1\"'",
    ),
    "shared, by itself": (f'{HEAD}"functions": {{"f": {{"scope": ["y", "z"], "costs": "f"}}}}}}', "3: '\"f\"'"),
    "shared, of none": (
        f'{HEAD}"functions": {{{TABLE},\n"f2": {{"scope": ["y", "z"], "costs": "f9"}}}}}}',
        "4: '\"f9\"'",
    ),
    "shared, of one that shares": (
        f'{HEAD}"functions": {{"f3": {{"scope": ["y", "z"], "costs": "f2"}},\n'
        f'"f2": {{"scope": ["y", "z"], "costs": "f1"}},\n{TABLE}}}}}',
        "3: '\"f2\"'",
    ),
    "shared, default": (
        f'{HEAD}"functions": {{"f2": {{"scope": ["y", "z"], "costs": "f1"}},\n'
        '"f1": {"scope": ["x", "y"], "defaultcost": 4, "costs": [a, c, 1, b, d, 3]}}}',
        "2",
    ),
    "shared, another default": (
        f'{HEAD}"functions": {{"f2": {{"scope": ["y", "z"], "defaultcost": 1, "costs": "f1"}},\n{TABLE}}}}}',
        "3: '\"defaultcost\"'",
    ),
    "shared, other domains": (
        f'{HEAD}"functions": {{"f2": {{"scope": ["y"], "costs": "f1"}},\n{TABLE}}}}}',
        "3: domains [2, 2]",
    ),
    "params": (f'{HEAD}"functions": {{"f": {{"scope": ["x"], "costs": [1, 2], "params": [3]}}}}}}', "3: '\"params\"'"),
    "another key": (
        f'{HEAD}"functions": {{"f": {{"scope": ["x"], "costs": [1, 2], "weight": 3}}}}}}',
        "3: '\"weight\"'",
    ),
    **{
        word: (
            f'{HEAD}"functions": {{"f": {{"scope": ["x", "y"], "type": "{word}", "params": {{"cost": 1}}}}}}}}',
            f"3: the global cost function {word!r}",
        )
        for word in ("alldifferent", "among")
    },
    "alldiff of an older toulbar2": (
        f'{HEAD}"functions": {{{TABLE}, "f": {{"scope": ["x", "y"], "type": "alldiff", '
        f'"params": {{"exceptedvalues": [1]}}}}}}}}',
        "1",
    ),
    "gcc, as toulbar2 writes it": (
        f'{HEAD}"functions": {{{TABLE}, "f": {{"scope": ["x", "y"], "type": "gcc", '
        f'"params": {{"bounds": [[1,0,0]], "deltaCosts": []}}}}}}}}',
        "5",
    ),
}


@pytest.mark.parametrize("name", CFN)
def test_cfn(name: str, tmp_path: Path) -> None:
    text, wanted = CFN[name]
    assert told(tmp_path / "a.cfn", text, "optimum") == wanted


@pytest.mark.parametrize("name", [name for name in CFN if name.startswith("shared") and CFN[name][1].isdigit()])
def test_shared_tables_are_those_of_toulbar2(name: str, tmp_path: Path) -> None:
    path = tmp_path / "a.cfn"
    text, wanted = CFN[name]
    path.write_text(text)
    [answer] = toulbar2([path])
    assert answer is not None
    assert answer[1] == float(wanted)


@pytest.mark.parametrize("name", [name for name in WCSP if name.startswith("shared") and WCSP[name][1][0] == "2"])
def test_shared_defaults_are_those_of_toulbar2(name: str, tmp_path: Path) -> None:
    path = tmp_path / "a.wcsp"
    text, wanted = WCSP[name]
    path.write_text(text)
    [answer] = toulbar2([path])
    assert answer is not None
    assert str(round(answer[1])) == wanted.partition(";")[0]


UAI_TABLES = "2\n2 2\n2\n1 0\n2 0 1\n2\n .5 2\n4\n 1 3 0 1\n"
TWO = "2\n2 2\n1\n2 0 1\n4\n"
UAI = {
    "MARKOV": (f"MARKOV\n{UAI_TABLES}", "4"),
    "markov": (f"markov\n{UAI_TABLES}", "4"),
    "BAYES": ("BAYES\n2\n2 2\n2\n1 0\n2 0 1\n2\n .5 .5\n4\n 1 0 .25 .75\n", "1"),
    "comments": (f"/* a */ MARKOV\n# b\n{UAI_TABLES}", "4"),
    "a function of nothing": ("MARKOV\n1\n2\n2\n0\n1 0\n1\n3\n2\n1 1\n", "6"),
    "no functions": ("MARKOV\n2\n2 3\n0\n", "6"),
    "a table of another size": (f"MARKOV\n{TWO.replace('4', '3')} 1 2 3\n", "6: '3'"),
    "too few entries": (f"MARKOV\n{TWO} 1 2 3\n", "7: the end of the file"),
    "too many entries": (f"MARKOV\n{TWO} 1 2 3 4 5\n", "7: '5'"),
    "a negative entry": (f"MARKOV\n{TWO} 1 2 -3 4\n", "7: '-3': name a file of natural logarithms .LG"),
    "an infinite entry": (f"MARKOV\n{TWO} 1 2 inf 4\n", "7: 'inf'"),
    "ID": (f"ID\n{TWO} 1 2 3 4\n", "1: an influence diagram"),
    "LIMID": (f"LIMID\n{TWO} 1 2 3 4\n", "1: an influence diagram"),
    "SPARSE": (f"SPARSE\n{TWO} 1 2 3 4\n", "1: a network of sparse tables"),
    "V-CREDAL": (f"V-CREDAL\n{TWO} 1 2 3 4\n", "1: a credal network"),
    "WCSP": (f"WCSP\n{TWO} 1 2 3 4\n", "1: a cost network: write .wcsp or .cfn"),
    "DBN": (f"DBN\n{TWO} 1 2 3 4\n", "1: a dynamic network"),
    "MAR": ("MAR\n1 2 .5 .5\n", "1: an answer of an evaluation, not a model"),
    "another word": (f"MARKOF\n{TWO} 1 2 3 4\n", "1: 'MARKOF'"),
}


@pytest.mark.parametrize("name", UAI)
def test_uai(name: str, tmp_path: Path) -> None:
    text, wanted = UAI[name]
    assert told(tmp_path / "a.uai", text, "partition") == wanted


LG = {
    "at least 0": (f"MARKOV\n{TWO} 0 0 0 1\n", math.log10(3 + math.e)),
    "negative": (f"MARKOV\n{TWO} -1 -inf 0 1\n", math.log10(math.exp(-1) + 1 + math.e)),
    "BAYES": ("BAYES\n1\n2\n1\n1 0\n2\n -0.6931471805599453 -0.6931471805599453\n", 0.0),
    "large": (
        f"MARKOV\n{TWO} 2000 1999 -inf 2000.5\n",
        (2000 + math.log(1 + math.exp(-1) + math.exp(0.5))) / math.log(10),
    ),
    "small": (f"MARKOV\n{TWO} -2000 -1999 -inf -9e2\n", (-900 + math.log(1 + math.exp(-1099))) / math.log(10)),
    "nothing": (f"MARKOV\n{TWO} -inf -inf -inf -inf\n", -math.inf),
    "a constant": ("MARKOV\n1\n2\n2\n0\n1 0\n1\n-5000\n2\n0 0\n", (-5000 + math.log(2)) / math.log(10)),
}


@pytest.mark.parametrize("name", LG)
def test_logarithms(name: str, tmp_path: Path) -> None:
    text, log10 = LG[name]
    for path in (tmp_path / "a.LG", tmp_path / "model"):
        path.write_text(text)
        model = bucketflow.load(path)
        by_content = path.name == "model"
        if by_content and "-" not in text:
            continue
        found = bucketflow.solve(model, "partition")
        assert found.log10 == pytest.approx(log10, abs=1e-9) if log10 > -math.inf else found.status == "infeasible"
        assert ("natural logarithms" in "".join(found.notes)) == by_content


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ("0 0 0 nan", "a natural logarithm, finite or -inf"),
        ("0 0 0 inf", "a natural logarithm, finite or -inf"),
        ("0 0 0 1e7", "natural logarithms from -1000000 to 1000000"),
        ("-800 0 0 700", "natural logarithms of a table within 1400 of each other"),
    ],
)
def test_logarithms_that_doubles_do_not_hold(entries: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / "a.LG").write_text(f"MARKOV\n{TWO} {entries}\n")
    with pytest.raises(FormatError) as caught:
        bucketflow.load(tmp_path / "a.LG")
    assert (caught.value.line, caught.value.expected) == (7, expected)


def test_logarithms_are_those_of_toulbar2(tmp_path: Path) -> None:
    """toulbar2 gives minus the natural logarithm of the best."""
    (tmp_path / "a.LG").write_text("MARKOV\n2\n2 2\n2\n1 0\n2 0 1\n2\n0 1\n4\n0 0 0 1\n")
    [answer] = toulbar2([tmp_path / "a.LG"])
    assert answer is not None
    best = bucketflow.solve(bucketflow.load(tmp_path / "a.LG"))
    assert best.log10 is not None
    assert best.assignment is not None
    assert [int(state) for state in best.assignment.values()] == answer[0]
    assert best.log10 == pytest.approx(2 / math.log(10))


EVIDENCE = {
    "n v x": ("1 0 1\n", {0: 1}),
    "n v x v x": ("2 1 0\n0 1\n", {0: 1, 1: 0}),
    "one sample": ("1\n1 0 1\n", {0: 1}),
    "none": ("0\n", {}),
    "nothing": ("", {}),
    "comments": ("/* Evidence */\n1 0 1 /* end */\n", {0: 1}),
    "names": ("1 x1 0\n", {1: 0}),
    "twice": ("2 0 1 0 1\n", {0: 1}),
    "two samples": ("2\n1 0 1\n1 0 0\n", "2 observed variables with their states"),
    "too few": ("2 0 1\n", "2 observed variables with their states"),
    "too many": ("1 0 1 1 0\n", "1 observed variables with their states"),
    "no variable": ("1 2 0\n", "a variable from 0 to 1"),
    "no state": ("1 0 2\n", "a state of variable 'x0' from 0 to 1"),
    "two states": ("2 0 1 0 0\n", "variable 'x0' in one state only"),
    "LIKELIHOOD": ("LIKELIHOOD 1 0 .5 .5\n", "the number of observed variables from 0 to 2"),
    "likelihoods": ("1 0 2 .5 .5\n", "1 observed variables with their states"),
}


@pytest.mark.parametrize("name", EVIDENCE)
def test_evidence(name: str, tmp_path: Path) -> None:
    text, wanted = EVIDENCE[name]
    (tmp_path / "a.uai").write_text(f"MARKOV\n{UAI_TABLES}")
    (tmp_path / "a.uai.evid").write_text(text)
    model = bucketflow.load(tmp_path / "a.uai")
    if isinstance(wanted, dict):
        assert load_evidence(tmp_path / "a.uai.evid", model) == wanted
        return
    with pytest.raises(FormatError) as caught:
        load_evidence(tmp_path / "a.uai.evid", model)
    assert wanted in caught.value.expected
    assert (name == "two samples") == (caught.value.found == "2 samples, of which a file may have one")


@pytest.mark.parametrize("suffix", ["map", "query", "MAR", "PR"])
def test_other_files_of_evaluations_are_no_evidence(suffix: str, tmp_path: Path) -> None:
    (tmp_path / "a.uai").write_text(f"MARKOV\n{UAI_TABLES}")
    (tmp_path / f"a.uai.{suffix}").write_text("1 0\n")
    with pytest.raises(FormatError, match="expected an evidence file, found a"):
        bucketflow.solve(bucketflow.load(tmp_path / "a.uai"), evidence=tmp_path / f"a.uai.{suffix}")


ERG_TABLES = "2\n2 2\n0\n1 0\n/* Probabilities */\n2\n.5 .5\n4\n.1 .9 1 0\n"
ERG = {
    "comments": (ERG_TABLES, "1"),
    "names": (f"{ERG_TABLES}A\nB\n", "1"),
    "names and labels": (f"{ERG_TABLES}A\nB\nyes no\nup down\n", "1"),
    "some labels": (f"{ERG_TABLES}A\nB\nyes no\n", "10: 4 words"),
    "equal names": (f"{ERG_TABLES}A\nA\n", "10: 'A'"),
    "its own parent": (ERG_TABLES.replace("1 0\n", "1 1\n", 1), "4: the variable itself"),
    "a table of another size": (ERG_TABLES.replace("4\n", "3\n"), "8: '3'"),
    "a negative entry": (ERG_TABLES.replace(".1", "-.1"), "9: '-.1'"),
}


@pytest.mark.parametrize("name", ERG)
def test_erg(name: str, tmp_path: Path) -> None:
    text, wanted = ERG[name]
    assert told(tmp_path / "a.erg", text, "partition") == wanted
