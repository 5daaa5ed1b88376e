"""A tiny model, two tokenizers, and stand-ins for the engine and the fleet.

Everything is made once and shared, so that a program is compiled once for all tests.
"""

import functools
import re
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from composer2_jax.agent.markers import CONTROL_MARKERS
from composer2_jax.agent.messages import Message
from composer2_jax.data.tokenizer import Tokenizer, train_tokenizer
from composer2_jax.envs.fleet import InfraError, StepResult
from composer2_jax.envs.task import Task
from composer2_jax.model.config import MLAConfig, ModelConfig, MoEConfig
from composer2_jax.model.transformer import Transformer, Variables, init_variables
from composer2_jax.sampler.engine import Engine, SamplerConfig, Turn
from composer2_jax.sampler.engine import Sequence as Live
from tests.envs.samples import FAULTY

VOCABULARY = 480  # the fewest pieces that the real tokenizer can be trained to
MODEL = ModelConfig(
    vocab_size=VOCABULARY,
    embed_dim=32,
    num_layers=2,
    first_dense_layers=1,
    dense_dim=64,
    num_heads=2,
    mla=MLAConfig(16, None, 8, 8, 8),
    moe=MoEConfig(num_experts=4, experts_per_token=2, expert_dim=16),
    prev_token_mixing=True,
    max_length=64,
)
# Two lengths of the cache, two sizes of a decode batch, two of a prompt's pieces: all seams.
SAMPLER = SamplerConfig(
    slots=4,
    max_length=64,
    prefill_shapes=((4, 4), (2, 8)),
    decode_rows=(1, 4),
    length_buckets=(32, 64),
)


@functools.cache
def variables(seed: int = 0) -> Variables:
    """Random weights, made without compiling an initialiser; router biases are not 0."""
    shapes = jax.eval_shape(lambda key: init_variables(MODEL, key), jax.random.key(0))
    rng = np.random.default_rng(seed)

    def fill(path: Any, leaf: jax.ShapeDtypeStruct) -> jax.Array:
        name = jax.tree_util.keystr(path)
        values = rng.normal(size=leaf.shape, scale=0.3)
        return jnp.asarray(1 + values if "norm" in name else values, leaf.dtype)

    return jax.tree_util.tree_map_with_path(fill, shapes)


def engine(config: SamplerConfig = SAMPLER, version: int = 0) -> Engine:
    made = Engine(MODEL, config)
    made.set_weights(variables(), version)
    return made


def run(made: Engine, limit: int = 1000) -> list[Live]:
    """Steps until nothing is left to do; the sequences in the order in which their turns ended."""
    finished = []
    while made.busy:
        finished += made.step()
        limit -= 1
        assert limit, "the engine does not come to an end"
    return finished


@functools.partial(jax.jit, static_argnums=0)
def _forward(model: ModelConfig, weights: Variables, tokens: Any, segments: Any) -> Any:
    positions = jnp.arange(tokens.shape[1])[None]
    output = Transformer(model).apply(weights, tokens, segments, positions)
    return jax.nn.log_softmax(output.logits, axis=-1)


def training_logprobs(tokens: Sequence[int], weights: Variables | None = None) -> np.ndarray:
    """log p(token t | tokens before it) by the training forward pass; 0 for the first."""
    padded = np.zeros((1, SAMPLER.max_length), np.int32)
    padded[0, : len(tokens)] = tokens
    segments = (np.arange(SAMPLER.max_length) < len(tokens)).astype(np.int32)[None]
    table = np.asarray(_forward(MODEL, weights or variables(), padded, segments))[0]
    found = [0.0] + [table[t - 1, tokens[t]] for t in range(1, len(tokens))]
    return np.array(found)


@functools.cache
def tokenizer() -> Tokenizer:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokenizer.model"
        train_tokenizer([FAULTY] * 20, path, VOCABULARY)
        return Tokenizer(path)


class ToyCodec:
    """Markers, characters and one merge: "ab" encodes to one token but may be sampled as two."""

    pieces = (*CONTROL_MARKERS, "ab", *map(chr, range(32, 127)), "\n")
    pattern = re.compile("|".join(map(re.escape, pieces)), re.DOTALL)

    def encode(self, text: str) -> list[int]:
        return [self.pieces.index(piece) for piece in self.pattern.findall(text)]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(self.pieces[i] for i in ids)


Policy = Callable[[Live, list[int]], list[int]]


class FakeEngine:
    """`policy` writes each turn, given the sequence and all ids that the engine was fed so far.

    The log-probability of the n-th token of a turn is -n/8, which float32 holds exactly.
    """

    def __init__(self, policy: Policy, slots: int = 4, max_length: int = 10_000):
        self.policy, self.max_length, self.version = policy, max_length, -1
        self.fed: dict[Live, list[int]] = {}
        self.ever_fed: list[list[int]] = []
        self._free, self._ready = list(range(slots)), list[Live]()

    def set_weights(self, weights: Any, version: int) -> None:
        assert version > self.version
        self.version = version

    @property
    def free_slots(self) -> int:
        return len(self._free)

    @property
    def busy(self) -> bool:
        return bool(self._ready)

    def open(self, seed: int, stop_ids: Sequence[int], max_turn_tokens: int) -> Live:
        live = Live(seed, self._free.pop(), frozenset(stop_ids), max_turn_tokens)
        self.fed[live] = []
        self.ever_fed.append(self.fed[live])
        return live

    def close(self, live: Live) -> None:
        del self.fed[live]
        self._free.append(live.slot)

    def submit(self, live: Live, tokens: Sequence[int]) -> bool:
        live.turn = Turn()
        if len(self.fed[live]) + len(tokens) + 1 > self.max_length:
            live.turn.stop = "context"
            return False
        self.fed[live] += tokens
        self._ready.append(live)
        return True

    def step(self) -> list[Live]:
        live = self._ready.pop(0)
        turn, room = live.turn, self.max_length - len(self.fed[live])
        for token in self.policy(live, list(self.fed[live])):
            turn.tokens.append(token)
            turn.logprobs.append(-len(turn.tokens) / 8)
            turn.versions.append(self.version)
            if token in live.stop_ids:
                turn.stop = "stop"
            elif len(turn.tokens) >= live.max_turn_tokens:
                turn.stop = "turn_length"
            elif len(turn.tokens) >= room:
                turn.stop = "context"
            if turn.stop:
                break
        assert turn.stop, "the policy wrote a turn without an end"
        self.fed[live] += turn.tokens
        return [live]


class FakeFleet:
    """Episodes of `max_turns` turns that `finish` ends; a turn with "good" in it earns reward 1.

    `failures` maps a verb (reset, step, truncate) to the errors that its next calls meet; with
    `held` set, futures stay open until `release` answers them.
    """

    def __init__(self, max_turns: int = 4, **failures: list[Exception]):
        self.max_turns, self.failures = max_turns, failures
        self.answer = "ok"
        self.held = False
        self.waiting: list[Callable[[], None]] = []
        self.open: dict[int, dict[str, Any]] = {}
        self.started = 0
        self.tasks: list[str] = []

    def reset(self, task: Task) -> "Future[StepResult]":
        number = self.started
        self.started += 1
        self.tasks.append(task.id)
        self.open[number] = {"turns": 0, "tool_errors": 0, "reward": 0.0}
        opening = (Message("user", task.prompt),)
        return self._answer("reset", number, StepResult(opening, info={}, episode=number))

    def step(self, episode: int, message: Message) -> "Future[StepResult]":
        state = self.open[episode]
        state["turns"] += 1
        state["tool_errors"] += bool(message.error)
        state["reward"] = max(state["reward"], float("good" in str(message)))
        finished = any(call.name == "finish" for call in message.calls)
        cut = not finished and state["turns"] >= self.max_turns
        answers = [self.answer] * (len(message.calls) - finished)
        texts = [message.error] if message.error else answers
        reward = state["reward"] if finished or cut else 0.0
        results = tuple(Message("tool", text) for text in texts)
        info = {"tool_errors": state["tool_errors"]}
        return self._answer("step", episode, StepResult(results, reward, finished, cut, info))

    def truncate(self, episode: int) -> "Future[StepResult]":
        state = self.open[episode]
        info = {"tool_errors": state["tool_errors"]}
        result = StepResult((), state["reward"], False, True, info)
        return self._answer("truncate", episode, result)

    def close_episode(self, episode: int) -> None:
        self.open.pop(episode, None)

    def release(self) -> None:
        self.answer = "ok"
        self.held = False
        waiting, self.waiting = self.waiting, []
        for answer in waiting:
            answer()

    def _answer(self, verb: str, episode: int, result: StepResult) -> "Future[StepResult]":
        future: Future[StepResult] = Future()
        errors = self.failures.get(verb)
        error = errors.pop(0) if errors else None
        if error is not None and verb == "reset":
            del self.open[episode]

        def settle() -> None:
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)

        if self.held:
            self.waiting.append(settle)
        else:
            settle()
        return future


def broken(times: int) -> list[Exception]:
    """That many failures of the machinery, one after another."""
    return [InfraError(f"no sandbox ({n})") for n in range(times)]
