"""The report's curves: losses of the pretraining phases, and everything logged over RL updates.

Carries out figure 5's reward curve at the size of the run, and shows what keeps asynchronous RL
honest: staleness and the trainer-sampler gap. No jax; `evals.report` may import it.
"""

from collections.abc import Mapping
from typing import Any

from composer2_jax.evals.charts import Frame, Series, line_chart, percent
from composer2_jax.evals.findings import Run
from composer2_jax.evals.page import absent, figure, section
from composer2_jax.evals.words import fixed, pct


def pretraining(report: Mapping[str, Any], run: Run) -> str:
    """Phase 1: the loss of each phase."""
    titles = {"bulk": "Bulk", "mtp": "MTP head", "long": "Context extension", "sft": "SFT"}
    curves = {name: run.stages[name].curve("loss") for name in titles}
    charts = "".join(
        line_chart(
            titles[name],
            [Series("loss", *curve, smooth=True)],
            "step",
            unit=_unit(run, name, "loss, nats a token"),
            frame=Frame(width=460, height=200),
        )
        for name, curve in curves.items()
        if curve[0]
    )
    missing = "".join(absent(titles[name]) for name, curve in curves.items() if not curve[0])
    text = (
        "<p>Bulk of the tokens, then longer contexts, then a short SFT on the transcripts of a "
        "scripted solver, with the loss on the agent&rsquo;s own tokens only. The multi-token "
        f"head is trained on the main head&rsquo;s own distribution{_phase_one_text(report)}</p>"
    )
    caption = "Training loss by phase: logged values faint, a moving mean over them."
    shown = figure(charts, caption, "charts two") if charts else ""
    return section(
        "pretraining",
        "Phase 1: continued pretraining",
        text + shown + missing,
    )


def _phase_one_text(report: Mapping[str, Any]) -> str:
    text = "."
    if report["mtp_acceptance"] is not None:
        text = f"; {pct(report['mtp_acceptance'])} of its drafts would be accepted."
    before, after = report["perplexity_before"], report["perplexity_after"]
    if after is not None:
        text += f" Perplexity of held-out files goes from {fixed(before, 3)} to {fixed(after, 3)}."
    return text


def reinforcement(run: Run) -> str:
    """Phase 2: what is logged at every update."""
    rl, title = run.stages["rl"], "Phase 2: asynchronous RL"
    if rl.status == "not run":
        return section("rl", title, absent("RL"))

    def curve(key: str, name: str = "", tone: str = "rl", smooth: bool = True) -> Series:
        return Series(name or key, *rl.curve(key), tone=tone, smooth=smooth)

    reward = f'<figure class="wide">{reward_chart(run, Frame(width=700, height=220))}</figure>'
    update = "update"

    def share(title: str, key: str, unit: str) -> str:
        return line_chart(title, [curve(key)], update, unit=unit, y_format=percent)

    charts = (
        share("Mixed groups", "mixed_groups", "solved by some, not all"),
        share("First edit right", "first_edit_right", "of episodes that edit"),
        share("Finished", "finished", "of episodes"),
        line_chart("Tests run", [curve("tests_run")], update, unit="an episode"),
        line_chart("Turns", [curve("turns")], update, unit="an episode"),
        line_chart("Tokens sampled", [curve("sampled_tokens")], update, unit="an episode"),
        line_chart("Entropy", [curve("entropy")], update, unit="nats a sampled token"),
        line_chart(
            "Staleness",
            [
                curve("staleness_max", "max", "sft", False),
                curve("staleness_mean", "mean", smooth=False),
            ],
            update,
            unit="updates behind",
            y_range=(0.0, 1.0),
        ),
        line_chart(
            "Sampler mismatch",
            [
                curve("mismatch_max", "max", "sft", False),
                curve("mismatch_p99", "p99", "control", False),
                curve("mismatch_mean", "mean", smooth=False),
            ],
            update,
            unit="|Δ log p| a token, equal weights",
            log=True,
        ),
        line_chart(
            "Drift from older weights", [curve("drift_mean")], update, unit="|Δ log p| a token"
        ),
        line_chart("Gradient norm", [curve("grad_norm")], update, unit="before clipping"),
        line_chart("Policy loss", [curve("loss")], update),
        line_chart("Time", [curve("seconds")], update, unit="seconds an update"),
    )
    text = (
        "<p>Policy gradient on the hidden tests of each task, several samples a task, each task "
        "once; the advantage is the reward minus the group&rsquo;s mean. Sampling runs beside "
        "training, so episodes come from slightly older weights: staleness and the gap between "
        "the trainer&rsquo;s and the sampler&rsquo;s probabilities are logged at every update.</p>"
    )
    caption = (
        "Curves over RL updates: logged values faint with a bold moving mean, or plain. The "
        "gap&rsquo;s axis is logarithmic; exact zeros are left out."
    )
    return section("rl", title, text + reward + figure("".join(charts), caption))


def reward_chart(run: Run, frame: Frame | None = None) -> str:
    """The mean training reward over RL updates."""
    reward = Series("reward", *run.stages["rl"].curve("reward_mean"), tone="rl", smooth=True)
    return line_chart(
        "Training reward",
        [reward],
        "RL update",
        unit="mean of a batch",
        y_range=(0.0, 0.1),
        frame=frame,
    )


def _unit(run: Run, name: str, unit: str) -> str:
    status = run.stages[name].status
    return unit if status == "done" else f"{unit} ({status})"
