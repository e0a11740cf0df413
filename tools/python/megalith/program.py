"""Programs: a config compiled for one target, rows bucket and number of SMs."""

from __future__ import annotations

import dataclasses
import json
import operator
import os
from typing import Any, Callable, Dict, List, Mapping, Optional, TypedDict, Union
from typing import Sequence as Many

import numpy as np

from megalith import _native
from megalith.errors import OptionError, ToleranceError

Config = Union[str, "os.PathLike[str]", Mapping[str, Any]]


@dataclasses.dataclass
class Sequence:
    """One sequence of a workload.

    Attributes:
        start: positions that are in its pages before the first step; their keys and values are made
            up from the seed.
        rows: new rows in every step, at positions start, start + 1, ... (several are a prefill chunk
            or a speculative draft).
        tokens: token ids of the new rows of all steps, [steps * rows]; None: made up from the seed.
        content: the sequence whose made-up tokens and history it has; two with the same are
            identical. None: its own.
        first_row: its first row in the rows bucket; None: behind the sequence before it. Rows that
            no sequence has are dead.
    """

    start: int = 0
    rows: int = 1
    tokens: Optional[Many[int]] = None
    content: Optional[int] = None
    first_row: Optional[int] = None


class Results(TypedDict, total=False):
    """What a run computed. S steps, N launches a step, R rows of the bucket (dead rows are zero), L
    layers, H hidden channels, E experts, k experts a row. Values of bf16 buffers come as float32,
    exactly; errors are relative RMS over live rows.
    """

    tokens: np.ndarray  #: int32 [S, R]
    positions: np.ndarray  #: int64 [S, R]
    sequences: np.ndarray  #: int32 [S, R], -1 in dead rows
    live: np.ndarray  #: bool [S, R]
    layers: np.ndarray  #: int64 [N]: the layer of each launch, -1 for the embedding's
    residual: np.ndarray  #: float32 [S, N, R, H]: the residual stream after each launch
    qkv: np.ndarray  #: float32 [S, N - 1, R, projections]: each launch's, for the layer after it
    logits: np.ndarray  #: float32 [S, R, vocabulary]; not there if the last launch did not run
    router_logits: np.ndarray  #: float32 [S, L, R, E]
    expert_ids: np.ndarray  #: int32 [S, L, R, k] in slot order, -1 in dead rows
    expert_weights: np.ndarray  #: float32 [S, L, R, k]
    #: Against the reference, float64 [S, N], NaN where a launch computes no such thing: "residual",
    #: "router" (logits and weights), "kv" (new keys and values), "qkv", "head" (logits from the
    #: kernels' last residual), "whole" (logits against a whole step of the reference).
    errors: Dict[str, np.ndarray]
    near_ties: np.ndarray  #: int64 [S, N]: rows where the reference alone would choose other experts
    wrong_rows: np.ndarray  #: int64 [S, N]: rows whose experts are not top-k of the kernel's logits
    passes: bool  #: within the tolerances
    difference: str  #: the first that is too large, with its place; or empty
    table: str  #: the errors as text


class Program:
    """A config compiled: IR, sources, plan, proof and runs. Made by `compile`."""

    def __init__(self, native: "_native.Program", name: str) -> None:
        self._native = native
        self._name = name
        self._ir: Dict[str, str] = native.ir()
        self._plan: str = native.plan()
        self._sources: Dict[str, str] = native.sources(True)

    def __repr__(self) -> str:
        plan = self.plan
        return (
            f"<megalith.Program {plan['model']} for {plan['target']}, rows {plan['rows']}, "
            f"{plan['sms']} SMs: {', '.join(self.kernels)}>"
        )

    @property
    def passes(self) -> List[str]:
        """Names for `ir`, in order: "import", then the passes."""
        return list(self._ir)

    def ir(self, pass_name: Optional[str] = None) -> str:
        """The module as text after a pass; after "import" the graph in the moe dialect; without a
        name after the last pass, which is what is proved and printed."""
        if pass_name is None:
            pass_name = self.passes[-1]
        if pass_name not in self._ir:
            raise OptionError(f"pass_name: expected one of {', '.join(self._ir)} but got {pass_name!r}")
        return self._ir[pass_name]

    @property
    def kernels(self) -> List[str]:
        """Names of the kernels. `plan["launches"]` says which launch of a step runs which."""
        return list(self._sources)

    @property
    def sources(self) -> Dict[str, str]:
        """Kernel -> CUDA C++. The device headers that it includes are inside this package."""
        return dict(self._sources)

    def source(self, kernel: str, digests: bool = True) -> str:
        """One kernel's CUDA C++; with `digests=False` without the banner's digests of IR and device
        headers, which change more often than the rest."""
        if kernel not in self._sources:
            raise OptionError(f"kernel: expected one of {', '.join(self._sources)} but got {kernel!r}")
        return self._sources[kernel] if digests else self._native.sources(False)[kernel]

    @property
    def plan(self) -> Dict[str, Any]:
        """plan.json as it is without cubins: kernels, buffers, weights, launches. Sizes in bytes."""
        return json.loads(self._plan)

    def verify(self, cases: int = 8) -> None:
        """Proves that no kernel deadlocks or races, for the largest step and `cases` random smaller
        ones. Raises VerificationError."""
        self._native.verify(_integer("cases", cases, 0, 10000))

    def save(self, folder: Union[str, "os.PathLike[str]"], cubins: bool = True, ir: bool = False) -> str:
        """Writes the artifact of `megalith compile` to `folder`/<target>/rows<n>, whole or not at
        all, replacing an earlier one; returns that folder. `cubins` needs NVRTC 13, but no GPU; `ir`
        adds the IR after each pass."""
        return self._native.save(_path("folder", folder), bool(cubins), bool(ir))

    def run(
        self,
        backend: str = "host",
        *,
        contexts: Optional[Many[int]] = None,
        sequences: Optional[Many[Union[Sequence, Mapping[str, Any]]]] = None,
        steps: int = 1,
        seed: int = 1,
        weight_seed: Optional[int] = None,
        layer: Optional[int] = None,
        schedule_seed: int = 1,
        check: bool = True,
        fault: Optional[str] = None,
    ) -> Results:
        """Runs steps with made-up weights, launch by launch, and compares each launch with the
        reference evaluator, started from what the launches before it left.

        Args:
            backend: "host": the emitted sources on this CPU, compiled by g++, under a scheduler with
                an adversarial memory model. "cuda": the first GPU; needs NVRTC 13 and a driver.
            contexts: positions that each sequence has already; one new row each. [129] if neither
                this nor `sequences` is given.
            sequences: the same in full, as `Sequence` or dicts of its attributes.
            steps: steps in a row; each sequence grows by its rows in each.
            seed: of made-up tokens, keys and values, and of weights unless `weight_seed` is given.
            layer: only that layer's launch, on a made-up residual.
            schedule_seed: host only: of the order in which its threads and memory move.
            check: raise ToleranceError if the results are out of tolerance.
            fault: planted in the reference, for tests that must fail ("rope-theta").

        Raises:
            OptionError, RunError, ToleranceError (with the results).
        """
        if contexts is not None and sequences is not None:
            raise OptionError("contexts, sequences: expected one of them but got both")
        if sequences is None:
            given: Many[Any] = [129] if contexts is None else _many("contexts", contexts)
            sequences = [Sequence(start=start) for start in given]
        results: Results = self._native.run(
            str(backend),
            [_sequence(i, s) for i, s in enumerate(_many("sequences", sequences))],
            _integer("steps", steps, 1, 1000),
            _integer("seed", seed, 0, 2**32 - 1),
            _integer("weight_seed", seed if weight_seed is None else weight_seed, 0, 2**32 - 1),
            None if layer is None else _integer("layer", layer, 0, 2**31),
            _integer("schedule_seed", schedule_seed, 0, 2**63),
            fault or "",
        )
        if check and not results["passes"]:
            raise ToleranceError(
                f"{self._name}: expected results within tolerance of the reference but got others: "
                f"{results['difference'] or 'their root mean square over the steps is too large'}",
                results,
            )
        return results


def compile(
    config: Config,
    target: str = "sm_90a",
    rows: int = 1,
    sms: Optional[int] = None,
    *,
    scope: str = "layer",
    tp: int = 1,
    quant: Optional[Union[str, "os.PathLike[str]"]] = None,
    act: str = "bf16",
    kv: str = "bf16",
    name: Optional[str] = None,
    verify: bool = True,
    progress: Optional[Callable[[str], Any]] = None,
) -> Program:
    """Compiles a model's decode step, as `megalith compile` does, but writes nothing.

    Args:
        config: a Hugging Face config of type qwen3_moe or mixtral: the path of a config.json, its
            text, or a dict.
        target: "sm_90a" (H100, H200) or "sm_100a" (B200).
        rows: most live rows of a step: 1, 2, 4, 8 or 16.
        sms: SMs to use; None: 132 for sm_90a, 148 for sm_100a.
        scope: what one launch computes: "layer", or "step" for one kernel that loops over the step.
        tp: ranks of tensor parallelism: 1, 2, 4 or 8. `run` then has virtual ranks.
        quant: which weights are NVFP4: "nvfp4", the experts; "none"; or the path of a
            hf_quant_config.json; None: the one beside the config's file, if there is one.
        act: what NVFP4 experts read: "bf16", or "nvfp4" (quantised before each of their matrices).
        kv: what keys and values are kept as: "bf16", or "e4m3" (FP8, with the checkpoint's scales if
            its hf_quant_config.json says that it has them, else 1).
        name: the config's in messages, sources and plan; the path if there is one.
        verify: prove the kernels.
        progress: called with the name of each piece of work as it begins.

    Raises:
        InputError: the config is wrong, not supported, or does not fit the target.
        OptionError: another argument is wrong.
        VerificationError: the kernels are not proved, which is a fault of the compiler.
    """
    if act not in ("bf16", "nvfp4"):
        raise OptionError(f"act: expected one of bf16, nvfp4 but got {act!r}")
    if kv not in ("bf16", "e4m3"):
        raise OptionError(f"kv: expected one of bf16, e4m3 but got {kv!r}")
    beside = ""
    if isinstance(config, Mapping):
        try:
            text, source = json.dumps(config), "config"
        except (TypeError, ValueError) as error:
            raise OptionError(f"config: expected a dict of JSON values but got others: {error}") from None
    elif isinstance(config, str) and config.lstrip()[:1] in ("{", "["):
        text, source = config, "config"
    else:
        text, source = _native.read_config(_path("config", config))
        beside = source
    if not isinstance(target, str):
        raise OptionError(f"target: expected a string but got {target!r}")
    if scope not in ("layer", "step"):
        raise OptionError(f"scope: expected one of layer, step but got {scope!r}")
    if tp not in (1, 2, 4, 8):
        raise OptionError(f"tp: expected one of 1, 2, 4, 8 but got {tp!r}")
    source = name or source
    program = _native.compile(
        text,
        source,
        target,
        _integer("rows", rows, 0, 2**31),
        0 if sms is None else _integer("sms", sms, 1, 1024),
        scope == "step",
        int(tp),
        _native.read_quantization(
            beside,
            ("" if beside else "none") if quant is None else _path("quant", quant),
            act,
            kv,
        ),
        progress,
    )
    if verify:
        if progress:
            progress("proof")
        program.verify(8)
    return Program(program, source)


def verify(ir: str, name: str = "ir", cases: int = 8) -> int:
    """Proves the kernels of a module's text (at role level, as `Program.ir()` gives it), as `megalith
    verify` does, and returns how many there are. `name` is the text's in messages. Raises
    VerificationError, or InputError for text that is no such module."""
    return _native.verify_text(ir, name, _integer("cases", cases, 0, 10000))


def emit(ir: str, name: str = "ir", digests: bool = True) -> Dict[str, str]:
    """Kernel -> CUDA C++ of a module's text (at role level), whatever made it; nothing is proved."""
    return _native.emit_text(ir, name, digests)


def _integer(name: str, value: Any, least: int, most: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise OptionError(f"{name}: expected a whole number but got {value!r}") from None
    if not least <= number <= most:
        raise OptionError(f"{name}: expected a number from {least} to {most} but got {number}")
    return number


def _path(name: str, value: Any) -> str:
    try:
        return os.fsdecode(value)
    except TypeError:
        raise OptionError(f"{name}: expected a path but got {value!r}") from None


def _many(name: str, values: Any) -> List[Any]:
    try:
        return list(values)
    except TypeError:
        raise OptionError(f"{name}: expected a list but got {values!r}") from None


def _sequence(index: int, given: Any) -> Any:
    """As the native module takes it: (start, rows, content, first_row, tokens)."""
    if isinstance(given, Mapping):
        known = [field.name for field in dataclasses.fields(Sequence)]
        for key in given:
            if key not in known:
                raise OptionError(f"sequence {index}: expected {', '.join(known)} but got {key!r}")
        given = Sequence(**given)
    if not isinstance(given, Sequence):
        raise OptionError(f"sequence {index}: expected a Sequence or a dict but got {given!r}")

    def number(what: str, value: Any, least: int = 0) -> int:
        return _integer(f"sequence {index}, {what}", value, least, 2**31 - 1)

    tokens = [] if given.tokens is None else _many(f"sequence {index}, tokens", given.tokens)
    if given.tokens is not None and not tokens:
        raise OptionError(f"sequence {index}: expected tokens or None but got an empty list")
    return (
        number("start", given.start),
        number("rows", given.rows, 1),
        index if given.content is None else number("content", given.content),
        -1 if given.first_row is None else number("first_row", given.first_row),
        [number("tokens", token) for token in tokens],
    )
